package snapshot

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/watch"
)

// Limits bound what a collection keeps and answers.
type Limits struct {
	// History is the time for which states are kept.
	History time.Duration
	// Staleness bounds the age of a newest state that is given: it has everything that the upstream had that long ago.
	Staleness time.Duration
	// Wait is the longest time for which a request waits for the feed to reach its revision.
	Wait time.Duration
}

// Collection is one resource in one representation, and what is known about it. Its methods are
// safe for concurrent use; reading takes no lock.
type Collection struct {
	resource CollectionKey
	limits   Limits
	budget   *budget              // of all collections
	outage   func() clock.Outage  // [Config.Outage]
	pacer    *watch.Pacer         // spreads the ends of watches, of all collections
	probes   *source.ProbeNumbers // numbers the probes of all collections
	counts   *feedCounts          // of all collections with this key

	// view is what is known now.
	view atomic.Pointer[View]
	// forecast is a copy of the feed's state machine, by which requests judge whether a proof can come in time.
	forecast atomic.Pointer[source.Freshness]
	// loadError is the error of the last try to load a state; nil if that succeeded.
	loadError atomic.Pointer[error]
	// lastUse is the time of the last request for the collection.
	lastUse atomic.Pointer[time.Time]
	// smallForwarded is the number of small lists that are being forwarded.
	smallForwarded atomic.Int32
	// forwardSlotsLeft is the number of lists that may still be forwarded, instead of waiting, while a state is loaded.
	forwardSlotsLeft atomic.Int32

	// These wake the feed: probeRequests when somebody waits for a revision that it has not reached, newWaiters
	// when awaited grows, outOfDate when the state must be loaded anew.
	probeRequests, newWaiters, outOfDate chan struct{}
	// awaited is the lowest number of a probe that satisfies everybody who waits for the newest state.
	awaited atomic.Uint64
	// lastObjectNumber is the number of the newest object. Each collection has a range of numbers of its own. Only
	// the feed uses it.
	lastObjectNumber uint64

	// mu guards the fields below, which the feed and the janitor write.
	mu sync.Mutex
	// retired reports whether the collection was dropped for ever.
	retired bool
	// epoch counts how often the known state was dropped or replaced. What was learned in one epoch is not given in
	// the next.
	epoch uint64
	// highest is the highest revision that the upstream has given since the last drop.
	highest uint64
	// pendingProbes are the probes whose revision the interval has not reached yet, by ascending revision.
	pendingProbes []probeResult
	// versions is the history that is written to; views hold copies.
	versions index.History
	// account is the number of bytes of the budget that the collection uses.
	account int64
	// checkpoints record which revision was reached when, so that history can be cut by time.
	checkpoints []checkpoint
}

// forwardSlots is the number of lists that are forwarded while a state is loaded; all others wait for it. So a crowd
// that comes to a collection which is not loaded costs the upstream little more than the load.
const forwardSlots = 4

// newCollection returns a collection that knows nothing yet.
func newCollection(key CollectionKey, limits Limits, b *budget, pacer *watch.Pacer, probes *source.ProbeNumbers) *Collection {
	c := &Collection{
		resource:      key,
		limits:        limits,
		budget:        b,
		pacer:         pacer,
		probes:        probes,
		counts:        &feedCounts{},
		probeRequests: make(chan struct{}, 1),
		outOfDate:     make(chan struct{}, 1),
		newWaiters:    make(chan struct{}, 1),
	}
	c.Touch()
	c.forwardSlotsLeft.Store(forwardSlots)
	c.publish(source.Freshness{})
	c.view.Store(&View{
		unavailable: reason.Warming, unavailableSince: time.Now(),
		replacedCh: make(chan struct{}), outdatedCh: make(chan struct{}),
	})
	return c
}

// NotOlderThan returns the newest state, at revision atLeast or later: what Any (atLeast 0) and
// NotOlderThan ask for. It waits a bounded time for the feed to get there.
func (c *Collection) NotOlderThan(ctx context.Context, atLeast uint64) (Snapshot, reason.Reason) {
	return c.reach(ctx, func(v *View) (Snapshot, reason.Reason) {
		return v.notOlder(c.moment(), atLeast)
	})
}

// Exact returns the state at revision rev: what Exact and continuations ask for. It waits a
// bounded time for the feed to get there.
func (c *Collection) Exact(ctx context.Context, rev uint64) (Snapshot, reason.Reason) {
	return c.reach(ctx, func(v *View) (Snapshot, reason.Reason) { return v.exact(c.moment(), rev) })
}

// moment returns what a question to a view depends on now.
func (c *Collection) moment() moment {
	m := moment{now: time.Now(), bound: c.limits.Staleness}
	if c.outage != nil {
		m.outage = c.outage()
	}
	return m
}

// reach asks the view and, while the answer is NotProven, the views that follow it, for at most Limits.Wait. If the
// answer is still NotProven then, it requests a probe.
func (c *Collection) reach(ctx context.Context, ask func(*View) (Snapshot, reason.Reason)) (Snapshot, reason.Reason) {
	c.Touch()
	snap, unavailable := c.await(ctx, c.limits.Wait, reason.NotProven, (*View).replaced, ask)
	if unavailable == reason.NotProven {
		c.requestProbe() // others may ask for that revision, too
	}
	return snap, unavailable
}

// await calls ask with the view and, while the answer is notYet, with the views that follow it. It ends after atMost,
// and when the view is the last one. changed returns the channel of a view that is closed when a later view may give
// another answer.
func (c *Collection) await(ctx context.Context, atMost time.Duration, notYet reason.Reason,
	changed func(*View) <-chan struct{}, ask func(*View) (Snapshot, reason.Reason),
) (snap Snapshot, why reason.Reason) {
	v := c.view.Load()
	if snap, why = ask(v); why != notYet {
		return snap, why
	}
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for !v.retired {
		select {
		case <-changed(v):
			v = c.view.Load()
			if snap, why = ask(v); why != notYet {
				return snap, why
			}
		case <-timer.C:
			return snap, why
		case <-ctx.Done():
			return snap, why
		}
	}
	return snap, why
}

// replaced returns a channel that is closed when there is another view.
func (v *View) replaced() <-chan struct{} { return v.replacedCh }

// outdated returns a channel that is closed when a probe has proven a newer state, or when the state is lost or found.
func (v *View) outdated() <-chan struct{} { return v.outdatedCh }

// AwaitLoad waits while the state is loaded, for atMost. It returns the reason why there is none then; None if there is
// one. For a list of the newest state it also waits while a load beside the known state is under way.
func (c *Collection) AwaitLoad(ctx context.Context, atMost time.Duration, newest bool) reason.Reason {
	_, why := c.await(ctx, atMost, reason.Warming, (*View).replaced, func(v *View) (Snapshot, reason.Reason) {
		if newest && v.unavailable == reason.None && !v.reloadingSince.IsZero() {
			return Snapshot{}, reason.Warming
		}
		return Snapshot{}, v.unavailable
	})
	return why
}

// LoadTimeLeft returns what is left of the time limit for a load that is under way; 0 if that is over, or there is no
// load. The limit counts from the collection's begin, or from the loss of its last state. For a list of the newest
// state a load beside the known state counts, too, from its begin.
func (c *Collection) LoadTimeLeft(limit time.Duration, newest bool) time.Duration {
	v := c.view.Load()
	switch {
	case v.unavailable == reason.Warming && !v.retired:
		return max(0, limit-time.Since(v.unavailableSince))
	case newest && v.unavailable == reason.None && !v.reloadingSince.IsZero():
		return max(0, limit-time.Since(v.reloadingSince))
	}
	return 0
}

// TakeForwardSlot takes one of the few slots for lists that are forwarded, instead of waiting, while there is no state.
// It returns false if none is left, or if nothing is loading.
func (c *Collection) TakeForwardSlot() bool {
	return c.view.Load().unavailable == reason.Warming && c.forwardSlotsLeft.Load() > 0 && c.forwardSlotsLeft.Add(-1) >= 0
}

// LoadError returns the error of the last try to load the state, for example the upstream's answer. It is nil if
// there was no try yet, or if the last one succeeded.
func (c *Collection) LoadError() error {
	if err := c.loadError.Load(); err != nil {
		return *err
	}
	return nil
}

// Touch records a use of the collection.
func (c *Collection) Touch() {
	now := time.Now()
	c.lastUse.Store(&now)
}

// idle returns the time since the last request for the collection, by the monotonic clock. It stands still while the
// machine is suspended, so that nothing is dropped as idle when it wakes.
func (c *Collection) idle(now time.Time) time.Duration { return now.Sub(*c.lastUse.Load()) }

// requestProbe tells the feed that somebody waits for a newer revision, or is about to.
func (c *Collection) requestProbe() {
	select {
	case c.probeRequests <- struct{}{}:
	default: // it knows already
	}
}

// loadAnew tells the feed to load the state anew, beside the one that is known.
func (c *Collection) loadAnew() {
	select {
	case c.outOfDate <- struct{}{}:
	default: // it is told already
	}
}

// pause waits between two tries to ask the upstream: for d, and at least for atLeast, which the upstream may have asked
// for. When somebody requests a probe, it waits no longer than minStreamLife or atLeast.
func (c *Collection) pause(ctx context.Context, d, atLeast time.Duration) bool {
	begun := time.Now()
	timer := time.NewTimer(max(d, atLeast))
	defer timer.Stop()
	select {
	case <-c.probeRequests:
		return clock.Sleep(ctx, min(max(d, atLeast), max(minStreamLife, atLeast))-time.Since(begun))
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
