package proxy

import (
	"time"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
)

// Some requests are forwarded although memory has, or will have, their resource: memory cannot give them the state that they
// ask for, or forwarding them is faster than a wait. This is found out before the review, if possible, and before each wait.

// whyForwardUnreviewed returns the reason to forward a list without a review, or None if a review must follow.
//
// If a list would be forwarded even if the review said yes, it is forwarded at once: kube-apiserver's answer shows as much
// about the caller's right as a review ([Handler.onListAnswer]), at no more cost. If an answer about the right is remembered
// already, the review is free and comes first.
func (h *Handler) whyForwardUnreviewed(d *decision) reason.Reason {
	if d.asked.Watch || h.Authorizer.Remembers(d.caller.Identity, &d.attributes) {
		return reason.None
	}
	why := h.whyForwardAnyway(d)
	d.unreviewed = why != reason.None
	return why
}

// whyForwardAnyway returns the reason for which a list would be forwarded even if the review said yes. It returns None if
// memory may answer the list, or if that shows only after a wait for a load or a proof.
func (h *Handler) whyForwardAnyway(d *decision) reason.Reason {
	collection, why := h.Collections.Find(d.key)
	if collection == nil {
		return why
	}
	if d.loadWait(collection) > 0 {
		return reason.None
	}
	if why := whyForwardNow(d, collection, h.ConsistentWait); why != reason.None {
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

// whyForwardNow returns the reason to forward a request rather than wait for memory, or None. There are two cases: memory
// cannot prove the newest state within proofWait; or the request is small, so that kube-apiserver answers sooner than a wait
// would end. Only a few small requests may be forwarded at the same time, so whyForwardNow counts them. d.endSmallForward
// ends the count.
func whyForwardNow(d *decision, collection *snapshot.Collection, proofWait time.Duration) reason.Reason {
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
