package proxy

import (
	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
)

// A list that memory cannot answer yet mostly waits. This file finds lists that are forwarded instead, for two causes. (A third
// is in [Handler.awaitLoad]: the first lists during a load.)
//
//   - Memory will not have the state for which the list asks. For example, a list asks for exactly revision 3, and memory has
//     the revisions from 7 on.
//   - The list is small, and memory cannot answer it yet. kube-apiserver answers a small list sooner ([reserveSmallForward]).
//
// Both causes are looked for before the review of the caller's right ([Handler.checkBeforeReview]). The second is looked for
// again before each wait ([Handler.readState]).

// checkBeforeReview returns the reason to forward a list without a review, or None if a review must follow. It sets
// d.unreviewed.
//
// A list that memory cannot answer is forwarded, whatever a review would say. kube-apiserver then authorizes the list itself,
// and its answer shows whether the caller has the right ([Handler.listAnswerHook]). So such a list needs no review. If the
// result of an earlier review is remembered, a review costs nothing, and comes first.
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

// checkMemory returns the reason to forward a list that memory cannot answer. It returns None if memory may be able to answer
// the list, perhaps after a wait. checkMemory itself does not wait.
func (h *Handler) checkMemory(d *decision, collection *snapshot.Collection) reason.Reason {
	if d.loadTimeLeft(collection) > 0 { // the collection is being loaded, so it is not known yet what memory will have
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
	return reserveSmallForward(d, collection)
}

// reserveSmallForward reserves one of the few places for small lists that are forwarded at the same time. It returns the reason
// to forward the list, and sets d.releaseSmallForward, which gives the place back. It returns None in these cases:
//
//   - The request is neither a later page of a list (Continue) nor a list of the newest state (Consistent). With ConsistentAll,
//     lists of the newest state are excluded, too.
//   - The list need not wait: memory has reached the page's revision, or its state is proven to be new enough.
//   - The list is not small, all places are taken, or memory has no state.
func reserveSmallForward(d *decision, collection *snapshot.Collection) reason.Reason {
	// A forwarded watch would stay at the upstream for minutes. With ConsistentAll, memory answers small lists, too.
	mustWaitForProof := d.asked.Watch || d.Rule.ConsistentLists == policy.ConsistentAll
	why := reason.None
	switch {
	case d.Semantics == policy.Continue:
		d.releaseSmallForward = collection.BeginForwardPage(d.query, d.Revision)
		why = reason.NotProven
	case d.Semantics == policy.Consistent && !mustWaitForProof:
		d.releaseSmallForward = collection.BeginForwardUnproven(d.query, d.caller.lastProbe)
		why = reason.Consistent
	}
	if d.releaseSmallForward == nil {
		return reason.None
	}
	return why
}
