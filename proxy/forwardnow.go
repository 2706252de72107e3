package proxy

import (
	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
)

// Some lists are forwarded although memory has, or will have, their resource: memory will not have the state that they ask
// for, or kube-apiserver answers them sooner than a wait for memory would end. This is found out before the review of the
// caller's right, if possible, and again before each wait.

// forwardUnreviewed decides whether a list is forwarded without a review. It returns the reason to forward the list, or None
// if a review must follow.
//
// A list that would be forwarded even if the review said yes is forwarded at once: kube-apiserver's answer to the list shows as
// much about the caller's right as a review ([Handler.onListAnswer]), at no more cost. If a decision is remembered already, the
// review costs nothing and comes first.
func (h *Handler) forwardUnreviewed(d *decision) reason.Reason {
	if d.asked.Watch || h.Authorizer.Remembers(d.caller.Identity, &d.attributes) {
		return reason.None
	}
	collection, why := h.Collections.Find(d.key)
	if collection != nil {
		why = h.forwardAnyway(d, collection)
	}
	d.unreviewed = why != reason.None
	return why
}

// forwardAnyway decides whether a list is forwarded whatever the review says. It returns the reason, or None if memory may
// answer the list, perhaps after a wait.
func (h *Handler) forwardAnyway(d *decision, collection *snapshot.Collection) reason.Reason {
	if d.loadWait(collection) > 0 { // memory is being loaded, so what it will have is not known yet
		return reason.None
	}
	var why reason.Reason
	switch d.Semantics {
	case policy.Consistent:
		why = collection.WhyNotConsistent(d.query, d.caller.lastProbe, h.ConsistentWait)
	case policy.Exact, policy.Continue:
		why = collection.WhyNoStateAt(d.Revision)
	default:
		why = collection.WhyNoStateNotOlderThan(d.Revision)
	}
	if why != reason.None {
		return why
	}
	return forwardSmall(d, collection)
}

// forwardSmall decides whether a small list is forwarded at once, since it would have to wait for memory. It returns the reason
// to forward the list, or None. Only a few small lists are forwarded at the same time. If this list is one of them,
// d.endSmallForward must be called after it was forwarded.
func forwardSmall(d *decision, collection *snapshot.Collection) reason.Reason {
	// Watches, and all lists with ConsistentAll, wait for the proof, however small they are.
	mustWait := d.asked.Watch || d.Rule.ConsistentLists == policy.ConsistentAll
	switch {
	case d.Semantics == policy.Continue:
		d.endSmallForward = collection.BeginForwardPage(d.query, d.Revision)
		if d.endSmallForward != nil {
			return reason.NotProven
		}
	case d.Semantics == policy.Consistent && !mustWait:
		d.endSmallForward = collection.BeginForwardUnproven(d.query, d.caller.lastProbe)
		if d.endSmallForward != nil {
			return reason.Consistent
		}
	}
	return reason.None
}
