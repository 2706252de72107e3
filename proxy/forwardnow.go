package proxy

import (
	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
)

// Some lists are forwarded although memory has, or will have, their resource. There are two causes: memory will not have the state
// that the list asks for, or kube-apiserver answers the list sooner than memory could. The functions of this file find these lists.
// They are called before the review of the caller's right, and again before each wait.

// checkBeforeReview returns the reason to forward a list without a review, or None if a review must follow. It sets d.unreviewed.
//
// A list that would be forwarded even after a review that allows it needs no review, since kube-apiserver's answer to the list tells
// as much about the caller's right, at no more cost ([Handler.listAnswerHook]). If the result of an earlier review is remembered, the
// review costs nothing, and comes first.
func (h *Handler) checkBeforeReview(d *decision) reason.Reason {
	if d.asked.Watch || h.Authorizer.Remembers(d.caller.Identity, &d.attributes) {
		return reason.None
	}
	collection, why := h.Collections.Find(d.key)
	if collection != nil {
		why = h.checkMemory(d, collection)
	}
	d.unreviewed = why != reason.None
	return why
}

// checkMemory returns the reason to forward a list for which memory is no help, or None if memory may answer the list, perhaps
// after a wait. It does not wait itself.
func (h *Handler) checkMemory(d *decision, collection *snapshot.Collection) reason.Reason {
	if d.loadTimeLeft(collection) > 0 { // nobody knows yet what memory will have
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
	return beginSmallForward(d, collection)
}

// beginSmallForward returns the reason to forward a small list that would have to wait for memory, or None. If it returns a reason,
// it sets d.endSmallForward. Until that is called, the list counts as one of the few small lists that may be forwarded at the same
// time.
func beginSmallForward(d *decision, collection *snapshot.Collection) reason.Reason {
	// Watches, and all lists with ConsistentAll, wait for the proof, however small they are.
	mustWait := d.asked.Watch || d.Rule.ConsistentLists == policy.ConsistentAll
	why := reason.None
	switch {
	case d.Semantics == policy.Continue:
		d.endSmallForward = collection.BeginForwardPage(d.query, d.Revision)
		why = reason.NotProven
	case d.Semantics == policy.Consistent && !mustWait:
		d.endSmallForward = collection.BeginForwardUnproven(d.query, d.caller.lastProbe)
		why = reason.Consistent
	}
	if d.endSmallForward == nil { // nothing to wait for, not small, or too many are being forwarded
		return reason.None
	}
	return why
}
