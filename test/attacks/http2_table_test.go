package attacks

func http2Attacks() map[string][]attack { return map[string][]attack{} }
