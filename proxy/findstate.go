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

// findState sets the collection and the state that the request asks for in d, or returns the reason to forward the request. If
// the state can be expected soon, findState waits for it:
//
//	request                      waits for a load   then waits for
//	list, Any or NotOlderThan    FirstLoad          the revision
//	list, Consistent             AnyLoad            a proof, up to ConsistentWait
//	list, Exact or Continue      no                 the revision
//	watch, Any or NotOlderThan   FirstLoad          the revision, up to revisionWait
//	watch, Consistent            AnyLoad            a proof
//	watch, After                 no                 the revision, up to revisionWait
//
// Two kinds of requests wait for no load: a list of a single name, and a watch that does not begin with the state (d.Initial is
// false). Some small lists are forwarded instead of waiting ([forwardSmall]). Before a long wait, findState pauses the request's
// seat, which [Handler.handle] resumes.
func (h *Handler) findState(ctx context.Context, d *decision) (why reason.Reason) {
	deadline := time.Now().Add(d.maxWait())
	d.collection, why = h.startCollection(ctx, d, deadline)
	if why != reason.None {
		return why
	}
	for {
		if why := awaitLoad(ctx, d, deadline); why != reason.None {
			return why
		}
		why = h.findLoaded(ctx, d, deadline)
		// Both reasons may mean that the state was lost while findLoaded waited. If it is being loaded again, wait for that, too.
		if why != reason.Warming && why != reason.NotProven {
			return why
		}
		if d.loadWait(d.collection) == 0 || !time.Now().Before(deadline) {
			return why
		}
	}
}

// mayWaitForLoad reports whether the request may wait for a load: the load gives the state that the request asks for, and the
// answer would cost the upstream much.
func (d *decision) mayWaitForLoad() bool {
	isList := !d.asked.Watch && d.query.Name == ""
	switch d.Semantics {
	case policy.Any, policy.NotOlderThan, policy.Consistent:
		return isList || d.Initial
	}
	return false
}

// maxWait returns the longest time for which findState waits: for loads, and if the request is a watch, also for the proof.
func (d *decision) maxWait() time.Duration {
	if d.asked.Watch {
		return maxWatchWait
	}
	return maxListWait
}

// loadWait returns the time for which the request may still wait for the collection's load, or 0 if it must not wait or no load
// is under way.
func (d *decision) loadWait(collection *snapshot.Collection) time.Duration {
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

// awaitLoad waits for the end of a load that is under way, if the request may wait for it. It returns the reason to forward the
// request, or None.
func awaitLoad(ctx context.Context, d *decision, deadline time.Time) reason.Reason {
	wait := min(d.loadWait(d.collection), time.Until(deadline))
	if wait <= 0 {
		return reason.None
	}
	// The first few lists do not wait: forwarding them costs little. A forwarded watch would stay upstream for minutes.
	if !d.asked.Watch && d.collection.TakeForwardSlot() {
		return reason.Warming
	}
	d.caller.seat.Pause()
	_, span := observe.StartStep(ctx, observe.SpanSnapshot)
	defer span.End()
	return d.collection.AwaitLoad(ctx, wait, d.awaitedLoads())
}

// findLoaded is findState without the wait for a load: it waits for a revision or a proof only.
func (h *Handler) findLoaded(ctx context.Context, d *decision, deadline time.Time) (why reason.Reason) {
	if d.Semantics == policy.Consistent {
		return h.proveNewest(ctx, d, deadline)
	}
	if why := forwardSmall(d, d.collection); why != reason.None {
		return why
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
// everything that was written before the probe was sent. If there is no hope of a proof, or if [forwardSmall] forwards the list, it
// does not wait.
func (h *Handler) proveNewest(ctx context.Context, d *decision, deadline time.Time) (why reason.Reason) {
	proofWait := h.ConsistentWait
	if d.asked.Watch {
		proofWait = time.Until(deadline)
	}
	if why := d.collection.WhyNotConsistent(d.query, d.caller.lastProbe, proofWait); why != reason.None {
		return why
	}
	if why := forwardSmall(d, d.collection); why != reason.None {
		return why
	}
	ctx, end := h.Observer.StartProof(ctx)
	d.caller.seat.Pause()
	d.snapshot, why = d.collection.Consistent(ctx, d.caller.lastProbe, proofWait)
	end(why)
	return why
}
