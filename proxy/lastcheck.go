package proxy

import (
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/snapshot"
)

// conditions has everything on which an answer from memory depends, at one moment.
type conditions struct {
	now time.Time
	// entry is the cluster's entry of the resource. If there is none, whyNoEntry says why.
	entry      cluster.Entry
	whyNoEntry reason.Reason
	// memory says which states of the collection are valid.
	memory snapshot.Validity
	// allowed reports whether the caller has the right to read: the last review said yes, and this result has not expired.
	allowed bool
}

// currentConditions returns the conditions of an answer as they are now. It does not wait.
func (h *Handler) currentConditions(d *decision) *conditions {
	now := time.Now()
	current := &conditions{
		now:     now,
		memory:  d.collection.Validity(),
		allowed: h.Authorizer.ValidFor(&d.ruling, now) > 0,
	}
	current.entry, current.whyNoEntry = h.Cluster.Lookup(resourceOf(d.asked))
	return current
}

// lastCheck returns None if the answer that was decided may be written under the current conditions. If it may not, lastCheck
// returns the reason to forward the request. The caller must not wait between lastCheck and the answer: reviews, loads, proofs,
// the wait for room and the audit log come before.
func lastCheck(d *decision, current *conditions) reason.Reason {
	if current.whyNoEntry != reason.None {
		return current.whyNoEntry
	}
	if current.entry != d.entry { // the resource was defined anew since the decision
		return reason.Warming
	}
	if why := current.memory.WhyNot(d.state, current.now); why != reason.None {
		return why
	}
	if !current.allowed {
		return reason.ReviewFailed
	}
	return reason.None
}
