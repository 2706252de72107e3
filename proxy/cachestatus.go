package proxy

import (
	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
)

// hit is the header's value for an answer from memory.
func hit(semantics policy.Semantics) string {
	return "listproxy; hit; detail=" + string(semantics)
}

// forwarded is the header's value for a request that went upstream. RFC 9211 wants one of its
// own words for why, ours are the detail.
func forwarded(why reason.Reason) string {
	fwd := "bypass"
	switch why {
	case reason.Warming, reason.Ahead, reason.History, reason.NotProven:
		fwd = "miss"
	case reason.Stale:
		fwd = "stale"
	}
	return "listproxy; fwd=" + fwd + "; detail=" + string(why)
}
