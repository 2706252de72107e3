package proxy

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/clock"
)

const (
	// maxListWait is the longest time for which a list waits until its resource is loaded. Without this wait, thousands of
	// lists that come at the same moment would all be forwarded, and the upstream would have to encode the whole state for
	// each.
	maxListWait = 10 * time.Second
	// maxWatchWait is the longest time for which a watch waits for the load and the proof together. A watch waits longer than a
	// list, since a forwarded watch would stay at the upstream for minutes.
	maxWatchWait = 30 * time.Second
	// revisionWait is the longest time for which a watch waits until memory has its revision. kube-apiserver's cache waits as
	// long (storage/cacher, blockTimeout).
	revisionWait = 3 * time.Second
	// startPause is the pause between two attempts to start a collection while many others are being started.
	startPause = 200 * time.Millisecond
)

// findState finds the state that the request asks for, and sets d.collection and d.state. If there is no such state, findState
// returns the reason to forward the request. d.Semantics says which state that is:
//
//	semantics      state                                                  parameters, for example
//	Any            any state                                              resourceVersion=0
//	NotOlderThan   a state at d.Revision or later                         resourceVersion=7
//	Exact          the state at d.Revision                                resourceVersion=7&resourceVersionMatch=Exact
//	Continue       the state at d.Revision, which is in the token         continue=...
//	Consistent     a state with all that was written before the request   none
//	After          the newest one, if all changes after d.Revision are    resourceVersion=7
//	               known (watches)
//
// Consistent needs a proof that the state is new enough. For this, a probe asks kube-apiserver for its current revision after
// the request came. When the state has reached this revision, it is proven.
//
// If the state can be expected soon, findState waits for it: first for a load, and then for a revision or a proof:
//
//	request                      waits for a load   then waits for
//	list, Any or NotOlderThan    FirstLoad          the revision
//	list, Consistent             AnyLoad            a proof, up to ConsistentWait
//	list, Exact or Continue      no                 the revision
//	watch, Any or NotOlderThan   FirstLoad          the revision, up to 3 s (revisionWait)
//	watch, Consistent            AnyLoad            a proof
//	watch, After                 no                 the revision, up to 3 s
//
// FirstLoad is the load of a collection without a state. AnyLoad also includes reloads. There are these exceptions: a list of a
// single name, and a watch that does not begin with the state (d.Initial is false), never wait for a load. Some small lists are
// forwarded instead of waiting ([reserveSmallForward]).
//
// Before a long wait, findState pauses the request's seat, which [Handler.handle] resumes.
func (h *Handler) findState(ctx context.Context, d *decision) reason.Reason {
	deadline := time.Now().Add(d.maxWait())
	collection, why := h.startCollection(ctx, d, deadline)
	if why != reason.None {
		return why
	}
	d.collection = collection
	for {
		if why := awaitLoad(ctx, d, deadline); why != reason.None {
			return why
		}
		why := h.readState(ctx, d, deadline)
		// The state may have been lost while readState waited. If it is being loaded again, wait for that load, too.
		stateMayBeLost := why == reason.Warming || why == reason.NotProven
		canRetry := stateMayBeLost && d.loadTimeLeft(collection) > 0 && time.Now().Before(deadline)
		if !canRetry {
			return why
		}
	}
}

// mayWaitForLoad reports whether the request may wait for a load. There are two conditions: the load gives the state that the
// request asks for, and kube-apiserver would have to send many objects if the request were forwarded.
func (d *decision) mayWaitForLoad() bool {
	isListOfMany := !d.asked.Watch && d.query.Name == ""
	switch d.Semantics {
	case policy.Any, policy.NotOlderThan, policy.Consistent:
		return isListOfMany || d.Initial
	}
	return false
}

// maxWait returns the longest time for which findState waits for loads. A watch must also get its proof in this time.
func (d *decision) maxWait() time.Duration {
	if d.asked.Watch {
		return maxWatchWait
	}
	return maxListWait
}

// loadTimeLeft returns the time for which the request may still wait for the collection's load. It returns 0 if the request
// must not wait, or if there is no load.
func (d *decision) loadTimeLeft(collection *snapshot.Collection) time.Duration {
	if !d.mayWaitForLoad() {
		return 0
	}
	return collection.LoadTimeLeft(d.maxWait(), d.awaitedLoads())
}

// awaitedLoads returns the kind of loads for which the request waits.
func (d *decision) awaitedLoads() snapshot.LoadKind {
	if d.Semantics == policy.Consistent {
		return snapshot.AnyLoad
	}
	return snapshot.FirstLoad
}

// startCollection returns the request's collection, which it starts if necessary, or the reason to forward the request.
func (h *Handler) startCollection(ctx context.Context, d *decision, deadline time.Time) (*snapshot.Collection, reason.Reason) {
	for {
		collection, why := h.Collections.Use(d.key)
		// Here Warming means that many other collections are being started.
		canRetry := why == reason.Warming && d.mayWaitForLoad() && time.Now().Before(deadline)
		if !canRetry {
			return collection, why
		}
		d.caller.seat.Pause()
		if !clock.Sleep(ctx, startPause) {
			return nil, why
		}
	}
}

// awaitLoad waits until the collection is loaded, if it is being loaded and the request may wait. It returns the reason to
// forward the request, or None.
func awaitLoad(ctx context.Context, d *decision, deadline time.Time) reason.Reason {
	wait := min(d.loadTimeLeft(d.collection), time.Until(deadline))
	if wait <= 0 {
		return reason.None
	}
	// The first few lists of a load are forwarded at once, which costs little. A watch would stay at the upstream for minutes.
	if !d.asked.Watch && d.collection.TakeForwardSlot() {
		return reason.Warming
	}
	d.caller.seat.Pause()
	_, span := observe.StartStep(ctx, observe.SpanSnapshot)
	defer span.End()
	return d.collection.AwaitLoad(ctx, wait, d.awaitedLoads())
}

// readState reads the state that the request asks for from the collection, and sets d.state. It waits for the revision or the
// proof, but not for a load. It returns the reason to forward the request if there is no such state.
func (h *Handler) readState(ctx context.Context, d *decision, deadline time.Time) (why reason.Reason) {
	if d.Semantics == policy.Consistent {
		return h.readConsistent(ctx, d, deadline)
	}
	if why := reserveSmallForward(d, d.collection); why != reason.None {
		return why
	}
	ctx, span := observe.StartStep(ctx, observe.SpanSnapshot)
	defer span.End()
	switch {
	case d.asked.Watch:
		gapless := d.Semantics == policy.After // the client must get every change after its revision
		d.state, why = d.collection.StateToWatch(ctx, d.Revision, gapless, min(revisionWait, time.Until(deadline)))
	case d.Semantics == policy.Any, d.Semantics == policy.NotOlderThan:
		d.state, why = d.collection.NotOlderThan(ctx, d.Revision)
	default:
		d.state, why = d.collection.Exact(ctx, d.Revision)
	}
	return why
}

// readConsistent is readState for Consistent. It waits for a proof by a probe that was sent after the request came, which
// means: after probe number d.caller.lastProbe. readConsistent returns a reason without a wait in two cases: a proof is
// unlikely, or the list is small and forwarded ([reserveSmallForward]).
func (h *Handler) readConsistent(ctx context.Context, d *decision, deadline time.Time) (why reason.Reason) {
	proofWait := h.ConsistentWait
	if d.asked.Watch {
		proofWait = time.Until(deadline)
	}
	if why := d.collection.WhyNotConsistent(d.query, d.caller.lastProbe, proofWait); why != reason.None {
		return why
	}
	if why := reserveSmallForward(d, d.collection); why != reason.None {
		return why
	}
	ctx, endProof := h.Observer.StartProof(ctx)
	d.caller.seat.Pause()
	d.state, why = d.collection.Consistent(ctx, d.caller.lastProbe, proofWait)
	endProof(why)
	return why
}
