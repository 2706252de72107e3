package proxy

import (
	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
)

// newestAsAny is the parameter which says that the newest state was asked for, and that the policy
// has this caller get any (RFC 9211, 4: a cache may have parameters of its own).
const newestAsAny = "; newest-as-any"

// hit is the header's value for an answer from memory.
func hit(semantics policy.Semantics) string {
	return "listproxy; hit; detail=" + string(semantics)
}

// cacheStatus is the header's value where the answer comes from memory.
func (a answer) cacheStatus() string {
	if a.asAny {
		return hit(policy.Any) + newestAsAny
	}
	return hit(a.semantics)
}

// forwarded is the header's value for a request that went upstream. RFC 9211 demands one of its own
// words for the reason (fwd); listproxy's own word is the detail.
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
