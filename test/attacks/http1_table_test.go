package attacks

func http1Attacks() map[string][]attack { return map[string][]attack{} }
