package proxy

import (
	"time"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
)

// tryForwardUnreviewed returns the reason to forward a list without a review, or None if a review must follow.
//
// If a list would be forwarded even after a yes, it is forwarded at once: kube-apiserver's answer shows as much about the
// caller's right as a review ([Handler.onListAnswer]), at no more cost. If an answer about the right is remembered already, the
// review is free and comes first.
func (h *Handler) tryForwardUnreviewed(d *decision) reason.Reason {
	if d.asked.Watch || h.Authorizer.Remembers(d.caller.Identity, &d.attributes) {
		return reason.None
	}
	why := h.tryForwardAnyway(d)
	d.unreviewed = why != reason.None
	return why
}

// tryForwardAnyway returns the reason for which a list would be forwarded even after a yes, so that a review would be in vain.
// It returns None if memory may answer, or if only a wait can tell.
func (h *Handler) tryForwardAnyway(d *decision) reason.Reason {
	collection, why := h.Collections.Find(d.key)
	if collection == nil {
		return why
	}
	if d.loadWait(collection) > 0 {
		return reason.None
	}
	if why := tryForwardNow(d, collection, h.ConsistentWait); why != reason.None {
		return why
	}
	switch d.Semantics {
	case policy.Consistent:
		return reason.None
	case policy.Exact, policy.Continue:
		return collection.WhyNoStateAt(d.Revision)
	}
	return collection.WhyNoStateNotOlderThan(d.Revision)
}

// tryForwardNow returns the reason to forward a request at once, or None. A request is forwarded at once if memory cannot prove
// the newest state within proofWait, or if the request is small: then a wait would take longer than kube-apiserver's answer. A
// small request is counted until d.endSmallForward is called, since only a few may be forwarded at the same time.
func tryForwardNow(d *decision, collection *snapshot.Collection, proofWait time.Duration) reason.Reason {
	switch d.Semantics {
	case policy.Consistent:
		why := collection.WhyNotConsistent(d.query, d.caller.lastProbe, proofWait)
		mustProve := d.asked.Watch || d.Rule.ConsistentLists == policy.ConsistentAll
		if why != reason.None || mustProve {
			return why
		}
		if done, forward := collection.TryForwardSmall(d.query, d.caller.lastProbe); forward {
			d.endSmallForward = done
			return reason.Consistent
		}
	case policy.Continue:
		if done, forward := collection.TryForwardPage(d.query, d.Revision); forward {
			d.endSmallForward = done
			return reason.NotProven
		}
	}
	return reason.None
}
