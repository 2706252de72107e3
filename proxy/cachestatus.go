package proxy

import "github.com/listproxy/listproxy/policy"

// hit is the header's value for an answer from memory.
func hit(semantics policy.Semantics) string {
	return "listproxy; hit; detail=" + string(semantics)
}

// forwarded is the header's value for a request that went upstream. RFC 9211 wants one of its
// own words for why, ours are the detail.
func forwarded(reason policy.Reason) string {
	why := "bypass"
	switch reason {
	case policy.ReasonWarming, policy.ReasonAhead, policy.ReasonHistory:
		why = "miss"
	case policy.ReasonStale:
		why = "stale"
	}
	return "listproxy; fwd=" + why + "; detail=" + string(reason)
}
