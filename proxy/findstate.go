package proxy

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/index"
)

const (
	// maxListWait is the longest time for which a list waits until its resource is loaded. If thousands of lists came at
	// the same moment and were forwarded, the upstream would have to encode the whole state for each.
	maxListWait = 10 * time.Second
	// maxStreamWait is the longest time for which a streaming list waits for the load and the proof together. At
	// kube-apiserver it waits as long until the watch cache is current enough.
	maxStreamWait = 30 * time.Second
	// startPause is the pause between two attempts to start a collection while many others are being started.
	startPause = 200 * time.Millisecond
)

// wanted says which state a list or watch asks for, and how long the request may wait for that state.
type wanted struct {
	policy.Evaluation
	query *index.Query
	watch bool
	// lastProbe is the number of the last probe that was sent before the request came.
	lastProbe uint64
	// seat is paused while the request waits.
	seat *limits.Grant
}

// isStreamingList reports whether the request is a watch that begins with the state.
func (w *wanted) isStreamingList() bool { return w.watch && w.Initial }

// mustProve reports whether the newest state must be proven even for a small list.
func (w *wanted) mustProve() bool {
	return w.watch || w.Rule.ConsistentLists == policy.ConsistentAlways
}

// maxWait returns the longest time for which the request waits for its state.
func (w *wanted) maxWait() time.Duration {
	if w.watch {
		return maxStreamWait
	}
	return maxListWait
}

// waitsForLoad reports whether the request may wait for a load. It may if the load will give the state that the request
// asks for, and forwarding the request would cost the upstream much.
func (w *wanted) waitsForLoad() bool {
	isList := !w.watch && w.query.Name == ""
	if !isList && !w.isStreamingList() {
		return false
	}
	return w.Semantics == policy.Any || w.Semantics == policy.NotOlderThan || w.Semantics == policy.Consistent
}

// loadWait returns the longest time for which the request waits for a load of the collection; 0 if it does not wait.
func (w *wanted) loadWait(collection *snapshot.Collection) time.Duration {
	if !w.waitsForLoad() {
		return 0
	}
	return collection.LoadTimeLeft(w.maxWait(), w.Semantics == policy.Consistent)
}

// find sets the collection and the state that the request asks for in found. It waits for a load or a proof that is
// likely to be over soon.
func (h *Handler) find(ctx context.Context, key snapshot.CollectionKey, want *wanted, found *answer) reason.Reason {
	deadline := time.Now().Add(want.maxWait()) // for the load and the proof together
	collection, why := h.Collections.Use(key)
	for why == reason.Warming && want.waitsForLoad() && time.Now().Before(deadline) && ctx.Err() == nil {
		want.seat.Pause()
		time.Sleep(startPause) // many collections are being started
		collection, why = h.Collections.Use(key)
	}
	if why != reason.None {
		return why
	}
	found.collection = collection
	if want.isStreamingList() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, deadline)
		defer stop()
	}
	for {
		if wait := min(want.loadWait(collection), time.Until(deadline)); wait > 0 {
			// A few lists are forwarded at once, at little cost. A watch that is forwarded would stay at the upstream for
			// minutes.
			if !want.watch && collection.TakeForwardSlot() {
				return reason.Warming
			}
			want.seat.Pause()
			_, span := observe.StartStep(ctx, observe.SpanSnapshot)
			why = collection.AwaitLoad(ctx, wait, want.Semantics == policy.Consistent)
			span.End()
			if why != reason.None {
				return why
			}
		}
		why = h.findState(ctx, want, found)
		mayBeLoading := why == reason.Warming || why == reason.NotProven // if the state was lost during the wait
		if !mayBeLoading || want.loadWait(collection) == 0 || !time.Now().Before(deadline) {
			return why
		}
	}
}

// forwardsAnyway returns the reason why a list would be forwarded whatever a review says, or None if that cannot be known
// without waiting. whenForwarded may be nil. If not, it must be called once the list was forwarded.
func (h *Handler) forwardsAnyway(
	key snapshot.CollectionKey, want *wanted,
) (why reason.Reason, whenForwarded func()) {
	collection, why := h.Collections.Find(key)
	switch {
	case collection == nil:
		return why, nil
	case want.loadWait(collection) > 0:
		return reason.None, nil
	}
	why, whenForwarded = h.forwardsAtOnce(collection, want)
	if why != reason.None || want.Semantics == policy.Consistent {
		return why, whenForwarded
	}
	exact := want.Semantics == policy.Exact || want.Semantics == policy.Continue
	return collection.StateUnavailable(want.Revision, exact), nil
}

// forwardsAtOnce returns the reason why a list of the newest state, or a page after the first, is forwarded without a wait
// for memory; None if it is not. whenForwarded is as in forwardsAnyway.
func (h *Handler) forwardsAtOnce(
	collection *snapshot.Collection, want *wanted,
) (why reason.Reason, whenForwarded func()) {
	switch want.Semantics {
	case policy.Consistent:
		why = collection.ConsistentUnavailable(*want.query, want.lastProbe, h.proofWait(want))
		if why != reason.None || want.mustProve() {
			return why, nil
		}
		if whenForwarded, small := collection.ForwardSmall(*want.query, want.lastProbe); small {
			return reason.Consistent, whenForwarded
		}
	case policy.Continue:
		if whenForwarded, rest := collection.ForwardRest(*want.query, want.Revision); rest {
			return reason.NotProven, whenForwarded
		}
	}
	return reason.None, nil
}

// findState sets the state that the request asks for in found. It waits for the state, but not for a load.
func (h *Handler) findState(ctx context.Context, want *wanted, found *answer) (why reason.Reason) {
	collection := found.collection
	why, found.whenForwarded = h.forwardsAtOnce(collection, want)
	if why != reason.None {
		return why
	}
	if want.Semantics == policy.Consistent {
		found.snapshot, why = h.proveNewest(ctx, collection, want)
		return why
	}
	ctx, span := observe.StartStep(ctx, observe.SpanSnapshot)
	defer span.End()
	switch {
	case want.watch:
		found.snapshot, why = collection.Follow(ctx, want.Revision, want.Semantics == policy.After, watchWait)
	case want.Semantics == policy.Any, want.Semantics == policy.NotOlderThan:
		found.snapshot, why = collection.NotOlderThan(ctx, want.Revision)
	default:
		found.snapshot, why = collection.Exact(ctx, want.Revision)
	}
	return why
}

// proveNewest returns the newest state. It waits for the proof that this state has everything that was written before the
// first probe after want.lastProbe was sent.
func (h *Handler) proveNewest(
	ctx context.Context, collection *snapshot.Collection, want *wanted,
) (snapshot.Snapshot, reason.Reason) {
	ctx, span := observe.StartStep(ctx, observe.SpanProof)
	defer span.End()
	report := h.Observer.MeasureProof(ctx)
	want.seat.Pause()
	snap, why := collection.Consistent(ctx, want.lastProbe, h.proofWait(want))
	span.SetAttributes(observe.ProofResult(report(why)))
	return snap, why
}

// proofWait returns the longest time for which the request waits for the proof.
func (h *Handler) proofWait(want *wanted) time.Duration {
	if want.watch {
		return maxStreamWait
	}
	return h.ConsistentWait
}
