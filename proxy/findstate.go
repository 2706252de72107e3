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
	// maxListWait is the longest time for which a list waits until its resource is loaded. If thousands of lists that come
	// at the same moment were forwarded, the upstream would have to encode the whole state for each.
	maxListWait = 10 * time.Second
	// maxWatchWait is the longest time for which a watch waits for the load and the proof together. kube-apiserver lets a
	// streaming list wait as long for its watch cache.
	maxWatchWait = 30 * time.Second
	// startPause is the pause between two attempts to start a collection while many others are being started.
	startPause = 200 * time.Millisecond
)

// findState sets the collection and the state that the request asks for in d, or returns the reason to forward the request. It
// waits for a load or a proof that is likely to be over soon. Before a long wait, it pauses the request's seat, which
// [Handler.handle] resumes.
func (h *Handler) findState(ctx context.Context, d *decision) (why reason.Reason) {
	deadline := time.Now().Add(d.maxWait())
	d.collection, why = h.startCollection(ctx, d, deadline)
	if why != reason.None {
		return why
	}
	// The state may be lost while the request waits for it. Then the request waits for the next load, too.
	for {
		if why := awaitLoad(ctx, d, deadline); why != reason.None {
			return why
		}
		why := h.findLoaded(ctx, d, deadline)
		mayBeLost := why == reason.Warming || why == reason.NotProven
		if !mayBeLost || d.loadWait(d.collection) == 0 || !time.Now().Before(deadline) {
			return why
		}
	}
}

// startCollection returns the request's collection, which it starts if necessary, or the reason to forward the request.
func (h *Handler) startCollection(
	ctx context.Context, d *decision, deadline time.Time,
) (*snapshot.Collection, reason.Reason) {
	for {
		collection, why := h.Collections.Use(d.key)
		if why != reason.Warming || !d.mayWaitForLoad() || !time.Now().Before(deadline) {
			return collection, why
		}
		d.caller.seat.Pause() // many collections are being started
		if !clock.Sleep(ctx, startPause) {
			return nil, why
		}
	}
}

// awaitLoad waits until a load of the collection that is under way is over, if the request may wait for it. It returns the
// reason to forward the request, or None.
func awaitLoad(ctx context.Context, d *decision, deadline time.Time) reason.Reason {
	wait := min(d.loadWait(d.collection), time.Until(deadline))
	if wait <= 0 {
		return reason.None
	}
	// A few lists are forwarded at once, at little cost. A forwarded watch would stay at the upstream for minutes.
	if !d.asked.Watch && d.collection.TakeForwardSlot() {
		return reason.Warming
	}
	d.caller.seat.Pause()
	_, span := observe.StartStep(ctx, observe.SpanSnapshot)
	defer span.End()
	return d.collection.AwaitLoad(ctx, wait, d.awaitedLoads())
}

// findLoaded sets the state that the request asks for in d, or returns the reason to forward the request. It waits for a
// revision or a proof, but not for a load.
func (h *Handler) findLoaded(ctx context.Context, d *decision, deadline time.Time) (why reason.Reason) {
	proofWait := h.ConsistentWait
	if d.asked.Watch {
		proofWait = time.Until(deadline)
	}
	if why := whyForwardNow(d, d.collection, proofWait); why != reason.None {
		return why
	}
	if d.Semantics == policy.Consistent {
		return h.proveNewest(ctx, d, proofWait)
	}
	ctx, span := observe.StartStep(ctx, observe.SpanSnapshot)
	defer span.End()
	switch {
	case d.asked.Watch:
		gapless := d.Semantics == policy.After
		d.snapshot, why = d.collection.Follow(ctx, d.Revision, gapless, min(revisionWait, time.Until(deadline)))
	case d.Semantics == policy.Any, d.Semantics == policy.NotOlderThan:
		d.snapshot, why = d.collection.NotOlderThan(ctx, d.Revision)
	default:
		d.snapshot, why = d.collection.Exact(ctx, d.Revision)
	}
	return why
}

// proveNewest sets the newest state in d. It waits for a probe later than caller.lastProbe, which proves that this state has
// everything that was written before the probe was sent.
func (h *Handler) proveNewest(ctx context.Context, d *decision, proofWait time.Duration) (why reason.Reason) {
	ctx, end := h.Observer.StartProof(ctx)
	d.caller.seat.Pause()
	d.snapshot, why = d.collection.Consistent(ctx, d.caller.lastProbe, proofWait)
	end(why)
	return why
}

// whyForwardAfterYes returns the reason why a list would be forwarded even after a yes of a review. It returns None if memory
// may answer the list, or if that cannot be known without a wait.
func (h *Handler) whyForwardAfterYes(d *decision) reason.Reason {
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

// whyForwardNow returns the reason to forward a request at once, or None. A request is forwarded at once if memory cannot
// prove the newest state within proofWait, or if the request costs kube-apiserver so little that a wait for memory would be
// slower. In the second case, whyForwardNow sets d.afterForward.
func whyForwardNow(d *decision, collection *snapshot.Collection, proofWait time.Duration) reason.Reason {
	switch d.Semantics {
	case policy.Consistent:
		why := collection.WhyNotConsistent(d.query, d.caller.lastProbe, proofWait)
		mustProve := d.asked.Watch || d.Rule.ConsistentLists == policy.ConsistentAll
		if why != reason.None || mustProve {
			return why
		}
		if done, forward := collection.TryForwardSmall(d.query, d.caller.lastProbe); forward {
			d.afterForward = done
			return reason.Consistent
		}
	case policy.Continue:
		if done, forward := collection.TryForwardPage(d.query, d.Revision); forward {
			d.afterForward = done
			return reason.NotProven
		}
	}
	return reason.None
}

// mayWaitForLoad reports whether the request may wait for a load: the load gives the state that the request asks for, and
// answering the request would cost the upstream much.
func (d *decision) mayWaitForLoad() bool {
	isList := !d.asked.Watch && d.query.Name == ""
	isStreamingList := d.Initial
	switch d.Semantics {
	case policy.Any, policy.NotOlderThan, policy.Consistent:
		return isList || isStreamingList
	}
	return false
}

// maxWait returns the longest time for which the request waits for loads; for a watch, for loads and the proof together.
func (d *decision) maxWait() time.Duration {
	if d.asked.Watch {
		return maxWatchWait
	}
	return maxListWait
}

// loadWait returns the time for which the request may wait for the load of the collection that is under way, or 0 if it must
// not wait or nothing is loading.
func (d *decision) loadWait(collection *snapshot.Collection) time.Duration {
	if !d.mayWaitForLoad() {
		return 0
	}
	return collection.LoadTimeLeft(d.maxWait(), d.awaitedLoads())
}

// awaitedLoads returns the kind of loads for which the request waits: a list of the newest state waits for reloads, too.
func (d *decision) awaitedLoads() snapshot.LoadKind {
	if d.Semantics == policy.Consistent {
		return snapshot.AnyLoad
	}
	return snapshot.FirstLoad
}
