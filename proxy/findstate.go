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
	// maxListWait is the longest time for which a list waits until its resource is loaded. If thousands of lists came at
	// the same moment and were forwarded, the upstream would have to encode the whole state for each.
	maxListWait = 10 * time.Second
	// maxWatchWait is the longest time for which a streaming list waits for the load and the proof together, and any other
	// watch for the proof. kube-apiserver lets a streaming list wait as long for its watch cache.
	maxWatchWait = 30 * time.Second
	// startPause is the pause between two attempts to start a collection while many others are being started.
	startPause = 200 * time.Millisecond
)

// isStreamingList reports whether the request is a watch that begins with the state.
func (a *answer) isStreamingList() bool { return a.asked.Watch && a.initial }

// isConsistent reports whether the request asks for the newest state.
func (a *answer) isConsistent() bool { return a.semantics == policy.Consistent }

// awaitedLoads returns the kind of loads for which the request waits.
func (a *answer) awaitedLoads() snapshot.LoadKind {
	if a.isConsistent() {
		return snapshot.AnyLoad
	}
	return snapshot.FirstLoad
}

// mayWaitForLoad reports whether the request may wait for a load. It may if the load will give the state that the request
// asks for, and if it would cost the upstream much to answer the request.
func (a *answer) mayWaitForLoad() bool {
	isList := !a.asked.Watch && a.query.Name == ""
	if !isList && !a.isStreamingList() {
		return false
	}
	return a.semantics == policy.Any || a.semantics == policy.NotOlderThan || a.isConsistent()
}

// maxWait returns the longest time for which the request waits for a load; for a streaming list, for the load and the proof
// together.
func (a *answer) maxWait() time.Duration {
	if a.asked.Watch {
		return maxWatchWait
	}
	return maxListWait
}

// loadWait returns the time for which the request may wait for a load of the collection that is under way; 0 if it must not
// wait.
func (a *answer) loadWait(collection *snapshot.Collection) time.Duration {
	if !a.mayWaitForLoad() {
		return 0
	}
	return collection.LoadTimeLeft(a.maxWait(), a.awaitedLoads())
}

// find sets the collection and the state that the request asks for in a. It waits for a load or a proof that is likely to be
// over soon. It returns the reason to forward the request, or None.
//
// Before a long wait, it pauses the request's seat, which [Handler.handle] resumes.
func (h *Handler) find(ctx context.Context, who *caller, a *answer) (why reason.Reason) {
	deadline := time.Now().Add(a.maxWait()) // for loads; for the proof, see proofWait
	if a.isStreamingList() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, deadline)
		defer stop()
	}
	a.collection, why = h.startCollection(ctx, who, a, deadline)
	if why != reason.None {
		return why
	}
	// While the request waits for its state, the state may be lost and loaded again. Then the request waits for that load,
	// too.
	for {
		if why := awaitLoad(ctx, who, a, deadline); why != reason.None {
			return why
		}
		why := h.findLoaded(ctx, who, a)
		mayBeLost := why == reason.Warming || why == reason.NotProven
		if !mayBeLost || a.loadWait(a.collection) == 0 || !time.Now().Before(deadline) {
			return why
		}
	}
}

// startCollection returns the request's collection, which it starts if necessary, or the reason to forward the request.
func (h *Handler) startCollection(
	ctx context.Context, who *caller, a *answer, deadline time.Time,
) (*snapshot.Collection, reason.Reason) {
	for {
		collection, why := h.Collections.Use(a.key)
		if why != reason.Warming || !a.mayWaitForLoad() || !time.Now().Before(deadline) {
			return collection, why
		}
		who.seat.Pause() // many collections are being started
		if !clock.Sleep(ctx, startPause) {
			return nil, why
		}
	}
}

// awaitLoad waits while the collection is being loaded, if the request may wait for that. It returns the reason to forward
// the request, or None.
func awaitLoad(ctx context.Context, who *caller, a *answer, deadline time.Time) reason.Reason {
	wait := min(a.loadWait(a.collection), time.Until(deadline))
	if wait <= 0 {
		return reason.None
	}
	// A few lists are forwarded at once, at little cost. A watch that is forwarded would stay at the upstream for minutes.
	if !a.asked.Watch && a.collection.TakeForwardSlot() {
		return reason.Warming
	}
	who.seat.Pause()
	_, span := observe.StartStep(ctx, observe.SpanSnapshot)
	defer span.End()
	return a.collection.AwaitLoad(ctx, wait, a.awaitedLoads())
}

// findLoaded sets the state that the request asks for in a, or returns the reason to forward the request. It waits for the
// state, but not for a load.
func (h *Handler) findLoaded(ctx context.Context, who *caller, a *answer) (why reason.Reason) {
	why, a.afterForward = h.reasonWithoutWait(a.collection, who, a)
	if why != reason.None {
		return why
	}
	if a.isConsistent() {
		return h.proveNewest(ctx, who, a)
	}
	ctx, span := observe.StartStep(ctx, observe.SpanSnapshot)
	defer span.End()
	switch {
	case a.asked.Watch:
		gapless := a.semantics == policy.After
		a.snapshot, why = a.collection.Follow(ctx, a.revision, gapless, revisionWait)
	case a.semantics == policy.Any, a.semantics == policy.NotOlderThan:
		a.snapshot, why = a.collection.NotOlderThan(ctx, a.revision)
	default:
		a.snapshot, why = a.collection.Exact(ctx, a.revision)
	}
	return why
}

// proveNewest sets the newest state in a. It waits for a probe later than who.lastProbe, which proves that this state has
// everything that was written before the probe was sent.
func (h *Handler) proveNewest(ctx context.Context, who *caller, a *answer) (why reason.Reason) {
	ctx, end := h.Observer.StartProof(ctx)
	who.seat.Pause()
	a.snapshot, why = a.collection.Consistent(ctx, who.lastProbe, h.proofWait(a))
	end(why)
	return why
}

// proofWait returns the longest time for which the request waits for the proof.
func (h *Handler) proofWait(a *answer) time.Duration {
	if a.asked.Watch {
		return maxWatchWait
	}
	return h.ConsistentWait
}

// reasonBeforeReview returns the reason why a list would be forwarded even if a review said yes. It returns None if memory may
// answer the list, or if that cannot be known without a wait. If afterForward is not nil, it must be called once the list
// was forwarded.
func (h *Handler) reasonBeforeReview(who *caller, a *answer) (why reason.Reason, afterForward func()) {
	collection, why := h.Collections.Find(a.key)
	switch {
	case collection == nil:
		return why, nil
	case a.loadWait(collection) > 0:
		return reason.None, nil
	}
	why, afterForward = h.reasonWithoutWait(collection, who, a)
	if why != reason.None || a.isConsistent() {
		return why, afterForward
	}
	if a.semantics == policy.Exact || a.semantics == policy.Continue {
		return collection.WhyNoStateAt(a.revision), nil
	}
	return collection.WhyNoStateNotOlderThan(a.revision), nil
}

// reasonWithoutWait returns the reason to forward a request that could also wait for memory: it asks for the newest state, or
// for a page after the first. None means that the request must wait, or has no need to. If afterForward is not nil, it must
// be called once the request was forwarded.
func (h *Handler) reasonWithoutWait(
	collection *snapshot.Collection, who *caller, a *answer,
) (why reason.Reason, afterForward func()) {
	switch a.semantics {
	case policy.Consistent:
		why = collection.WhyNotConsistent(a.query, who.lastProbe, h.proofWait(a))
		if why != reason.None || a.mustProve {
			return why, nil
		}
		if afterForward, small := collection.TryForwardSmall(a.query, who.lastProbe); small {
			return reason.Consistent, afterForward
		}
	case policy.Continue:
		if afterForward, rest := collection.TryForwardPage(a.query, a.revision); rest {
			return reason.NotProven, afterForward
		}
	}
	return reason.None, nil
}
