package proxy

import (
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/snapshot"
)

// conditions is everything that an answer from memory depends on, at one moment.
type conditions struct {
	now time.Time
	// entry is the catalog's entry of the resource.
	entry cluster.Entry
	// whyNoEntry is the reason why the catalog has no entry, or None.
	whyNoEntry reason.Reason
	// memory is the validity of the collection's states.
	memory snapshot.Validity
	// allowed reports whether the caller's right is still valid.
	allowed bool
}

// lastCheck returns None if the answer may be written under the current conditions; otherwise the reason to forward the
// request. It must be called after everything that waits: reviews, loads, proofs, the wait for room, the audit log.
func lastCheck(a *answer, current *conditions) reason.Reason {
	if current.whyNoEntry != reason.None {
		return current.whyNoEntry
	}
	if current.entry != a.entry { // the resource was defined anew
		return reason.Warming
	}
	if why := current.memory.WhyNot(a.snapshot, current.now); why != reason.None {
		return why
	}
	if !current.allowed {
		return reason.ReviewFailed
	}
	return reason.None
}
