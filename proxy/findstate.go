package proxy

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
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

// wantedState says which state a list or watch asks for, and how long the request may wait for that state.
type wantedState struct {
	key   snapshot.CollectionKey
	query index.Query
	// semantics and revision say which state of the collection.
	semantics policy.Semantics
	revision  uint64
	isWatch   bool
	// initial reports whether the watch begins with the state.
	initial bool
	// mustProve reports whether the newest state must be proven even for a small list.
	mustProve bool
	// lastProbe is the number of the last probe that was sent before the request came.
	lastProbe uint64
	// seat is the request's seat, which is paused before a long wait. [Handler.handle] resumes it.
	seat *limits.Grant
}

// isStreamingList reports whether the request is a watch that begins with the state.
func (w *wantedState) isStreamingList() bool { return w.isWatch && w.initial }

// isConsistent reports whether the request asks for the newest state.
func (w *wantedState) isConsistent() bool { return w.semantics == policy.Consistent }

// mayWaitForLoad reports whether the request may wait for a load. It may if the load will give the state that the request
// asks for, and forwarding the request would cost the upstream much.
func (w *wantedState) mayWaitForLoad() bool {
	isList := !w.isWatch && w.query.Name == ""
	if !isList && !w.isStreamingList() {
		return false
	}
	return w.semantics == policy.Any || w.semantics == policy.NotOlderThan || w.isConsistent()
}

// maxWait returns the longest time for which the request waits for a load; for a streaming list, for the load and the proof
// together.
func (w *wantedState) maxWait() time.Duration {
	if w.isWatch {
		return maxWatchWait
	}
	return maxListWait
}

// loadWait returns the time for which the request may wait for a load of the collection that is under way; 0 if it must not
// wait.
func (w *wantedState) loadWait(collection *snapshot.Collection) time.Duration {
	if !w.mayWaitForLoad() {
		return 0
	}
	return collection.LoadTimeLeft(w.maxWait(), w.isConsistent())
}

// foundState is the result of [Handler.find].
type foundState struct {
	collection *snapshot.Collection
	snapshot   snapshot.Snapshot
	// why is the reason to forward the request, since there is no such state; None if there is one.
	why reason.Reason
	// afterForward must be called once the request was forwarded. It may be nil.
	afterForward func()
}

// find returns the state that the request asks for. It waits for a load or a proof that is likely to be over soon.
func (h *Handler) find(ctx context.Context, want *wantedState) foundState {
	deadline := time.Now().Add(want.maxWait()) // for loads; for the proof, see proofWait
	if want.isStreamingList() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, deadline)
		defer stop()
	}
	collection, why := h.startCollection(ctx, want, deadline)
	if why != reason.None {
		return foundState{why: why}
	}
	// While the request waits for its state, the state may be lost and loaded again. Then the request waits for that load,
	// too.
	for {
		if why := awaitLoad(ctx, collection, want, deadline); why != reason.None {
			return foundState{why: why}
		}
		found := h.findLoaded(ctx, collection, want)
		mayBeLost := found.why == reason.Warming || found.why == reason.NotProven
		if !mayBeLost || want.loadWait(collection) == 0 || !time.Now().Before(deadline) {
			return found
		}
	}
}

// startCollection returns the request's collection, which it starts if necessary, or the reason to forward the request.
func (h *Handler) startCollection(
	ctx context.Context, want *wantedState, deadline time.Time,
) (*snapshot.Collection, reason.Reason) {
	for {
		collection, why := h.Collections.Use(want.key)
		if why != reason.Warming || !want.mayWaitForLoad() || !time.Now().Before(deadline) {
			return collection, why
		}
		want.seat.Pause() // many collections are being started
		if !clock.Sleep(ctx, startPause) {
			return nil, why
		}
	}
}

// awaitLoad waits while the collection is being loaded, if the request may wait for that. It returns the reason to forward
// the request, or None.
func awaitLoad(
	ctx context.Context, collection *snapshot.Collection, want *wantedState, deadline time.Time,
) reason.Reason {
	wait := min(want.loadWait(collection), time.Until(deadline))
	if wait <= 0 {
		return reason.None
	}
	// A few lists are forwarded at once, at little cost. A watch that is forwarded would stay at the upstream for minutes.
	if !want.isWatch && collection.TakeForwardSlot() {
		return reason.Warming
	}
	want.seat.Pause()
	_, span := observe.StartStep(ctx, observe.SpanSnapshot)
	defer span.End()
	return collection.AwaitLoad(ctx, wait, want.isConsistent())
}

// findLoaded returns the state that the request asks for. It waits for the state, but not for a load.
func (h *Handler) findLoaded(ctx context.Context, collection *snapshot.Collection, want *wantedState) foundState {
	found := foundState{collection: collection}
	found.why, found.afterForward = h.reasonWithoutWait(collection, want)
	if found.why != reason.None {
		return found
	}
	if want.isConsistent() {
		found.snapshot, found.why = h.proveNewest(ctx, collection, want)
		return found
	}
	ctx, span := observe.StartStep(ctx, observe.SpanSnapshot)
	defer span.End()
	switch {
	case want.isWatch:
		gapless := want.semantics == policy.After
		found.snapshot, found.why = collection.Follow(ctx, want.revision, gapless, revisionWait)
	case want.semantics == policy.Any, want.semantics == policy.NotOlderThan:
		found.snapshot, found.why = collection.NotOlderThan(ctx, want.revision)
	default:
		found.snapshot, found.why = collection.Exact(ctx, want.revision)
	}
	return found
}

// proveNewest returns the newest state. It waits for the proof that this state has everything that was written before the
// first probe after want.lastProbe was sent.
func (h *Handler) proveNewest(
	ctx context.Context, collection *snapshot.Collection, want *wantedState,
) (snapshot.Snapshot, reason.Reason) {
	ctx, end := h.Observer.StartProof(ctx)
	want.seat.Pause()
	snap, why := collection.Consistent(ctx, want.lastProbe, h.proofWait(want))
	end(why)
	return snap, why
}

// proofWait returns the longest time for which the request waits for the proof.
func (h *Handler) proofWait(want *wantedState) time.Duration {
	if want.isWatch {
		return maxWatchWait
	}
	return h.ConsistentWait
}

// reasonBeforeReview returns the reason to forward a list that would be forwarded even if a review said yes. It returns
// None if that cannot be known without a wait. If afterForward is not nil, it must be called once the list was forwarded.
func (h *Handler) reasonBeforeReview(want *wantedState) (why reason.Reason, afterForward func()) {
	collection, why := h.Collections.Find(want.key)
	switch {
	case collection == nil:
		return why, nil
	case want.loadWait(collection) > 0:
		return reason.None, nil
	}
	why, afterForward = h.reasonWithoutWait(collection, want)
	if why != reason.None || want.isConsistent() {
		return why, afterForward
	}
	if want.semantics == policy.Exact || want.semantics == policy.Continue {
		return collection.WhyNotExact(want.revision), nil
	}
	return collection.WhyNotOlderThan(want.revision), nil
}

// reasonWithoutWait returns the reason to forward a list of the newest state, or a page after the first, instead of waiting
// for memory; None if the request is to wait. afterForward is as in reasonBeforeReview.
func (h *Handler) reasonWithoutWait(
	collection *snapshot.Collection, want *wantedState,
) (why reason.Reason, afterForward func()) {
	switch want.semantics {
	case policy.Consistent:
		why = collection.WhyNotConsistent(want.query, want.lastProbe, h.proofWait(want))
		if why != reason.None || want.mustProve {
			return why, nil
		}
		if afterForward, small := collection.TryForwardSmall(want.query, want.lastProbe); small {
			return reason.Consistent, afterForward
		}
	case policy.Continue:
		if afterForward, rest := collection.TryForwardPage(want.query, want.revision); rest {
			return reason.NotProven, afterForward
		}
	}
	return reason.None, nil
}
