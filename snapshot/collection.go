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
	// History is how far back states are kept.
	History time.Duration
	// Staleness is the age from which on the newest state is no longer given: a state that is given
	// has everything that the upstream had that long ago.
	Staleness time.Duration
	// Wait is the time for which a request waits for the feed to reach its revision.
	Wait time.Duration
}

// Collection is one resource in one representation, and what is known about it. Its methods are
// safe for concurrent use; reading takes no lock.
type Collection struct {
	resource CollectionKey
	limits   Limits
	begun    time.Time
	budget   *budget              // of all collections
	outage   func() clock.Outage  // [Config.Outage]
	pacer    *watch.Pacer         // spreads the ends of watches, of all collections
	probes   *source.ProbeNumbers // numbers the probes of all collections
	// life counts how often the state is loaded and lost.
	life *lifecycle

	// view is what is known now.
	view atomic.Pointer[View]
	// forecast is a copy of the feed's state machine: it says whether a proof can come.
	forecast atomic.Pointer[source.Freshness]
	// loadError is the reason why the last try to load a state has failed; nil once one was loaded.
	loadError atomic.Pointer[error]
	// lastUse is the time at which a request last asked.
	lastUse atomic.Pointer[time.Time]
	// small is the number of small lists that are being forwarded.
	small atomic.Int32
	// forwardSlotsLeft is the number of lists that are still forwarded while the state is loaded, and do not wait.
	forwardSlotsLeft atomic.Int32

	// These wake the feed: probeRequests when somebody waits for a revision that it has not reached, newWaiters
	// when awaited grows, outOfDate when the state must be loaded anew.
	probeRequests, newWaiters, outOfDate chan struct{}
	// awaited is the number of the earliest probe that satisfies everybody who waits for the newest state.
	awaited atomic.Uint64
	// objects is the number of the newest object. The numbers begin with one that no other collection
	// has. Only the feed uses it.
	objects uint64

	// mu is held by the writers of what follows: the feed and the janitor.
	mu sync.Mutex
	// retired is set, for ever, when the collection must not know anything any more.
	retired bool
	// epoch counts how often the collection has forgotten all that it knew. What was learned in one
	// epoch is not given in the next.
	epoch uint64
	// highest is the highest revision ever heard of from this storage.
	highest uint64
	// pendingProbes are the upstream's revisions, ascending, that the interval has not reached yet.
	pendingProbes []pendingProbe
	// versions is the writers' handle; views hold copies.
	versions index.History
	// account is how many bytes of the budget they use.
	account int64
	// checkpoints record which revision was reached when, so that history can be cut by time.
	checkpoints []checkpoint
}

// forwardSlots is the number of lists that are forwarded, while a state is loaded, before the others wait for it:
// a crowd that comes at once to a collection that is not there costs the upstream little more than
// the load.
const forwardSlots = 4

func newCollection(r CollectionKey, limits Limits, b *budget, pacer *watch.Pacer, probes *source.ProbeNumbers) *Collection {
	c := &Collection{
		resource:      r,
		limits:        limits,
		budget:        b,
		begun:         time.Now(),
		pacer:         pacer,
		probes:        probes,
		life:          &lifecycle{counts: &feedCounts{}},
		probeRequests: make(chan struct{}, 1),
		outOfDate:     make(chan struct{}, 1),
		newWaiters:    make(chan struct{}, 1),
	}
	c.Touch()
	c.forwardSlotsLeft.Store(forwardSlots)
	c.publish(source.Freshness{})
	c.view.Store(&View{unavailable: reason.Warming, next: make(chan struct{}), newer: make(chan struct{})})
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

// moment returns the circumstances in which a view is asked.
func (c *Collection) moment() moment {
	m := moment{now: time.Now(), bound: c.limits.Staleness}
	if c.outage != nil {
		m.outage = c.outage()
	}
	return m
}

// reach asks the view for a revision and, while the answer is NotProven, the views that follow, for a
// bounded time. If none has it then, it requests a probe.
func (c *Collection) reach(ctx context.Context, ask func(*View) (Snapshot, reason.Reason)) (Snapshot, reason.Reason) {
	c.Touch()
	snap, unavailable := c.await(ctx, c.limits.Wait, reason.NotProven, (*View).replaced, ask)
	if unavailable == reason.NotProven {
		c.requestProbe() // others may ask for that revision, too
	}
	return snap, unavailable
}

// await calls ask with the view and, while the answer is notYet, with the views that follow, for atMost, or
// until none can follow. changes returns a channel that is closed when another view may have another answer.
func (c *Collection) await(ctx context.Context, atMost time.Duration, notYet reason.Reason,
	changes func(*View) <-chan struct{}, ask func(*View) (Snapshot, reason.Reason),
) (snap Snapshot, why reason.Reason) {
	v := c.view.Load()
	if snap, why = ask(v); why != notYet {
		return snap, why
	}
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for !v.retired {
		select {
		case <-changes(v):
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

// replaced is closed when there is another view.
func (v *View) replaced() <-chan struct{} { return v.next }

// outdated is closed when a probe has proven a newer state, or when the state is lost.
func (v *View) outdated() <-chan struct{} { return v.newer }

// AwaitLoad waits for atMost while the state is loaded, and returns why there is none; None if there is one. Who
// wants the newest state waits for a state that is loaded anew, too.
func (c *Collection) AwaitLoad(ctx context.Context, atMost time.Duration, newest bool) reason.Reason {
	_, why := c.await(ctx, atMost, reason.Warming, (*View).replaced, func(v *View) (Snapshot, reason.Reason) {
		if newest && v.unavailable == reason.None && !v.reloads.IsZero() {
			return Snapshot{}, reason.Warming
		}
		return Snapshot{}, v.unavailable
	})
	return why
}

// LoadTimeLeft is the time for which the collection may still take to load its state: within, since it was begun or lost its last
// state; or, for who wants the newest state, since it began to load that anew. 0: it is not loading, or takes
// longer.
func (c *Collection) LoadTimeLeft(within time.Duration, newest bool) time.Duration {
	v, since := c.view.Load(), c.begun
	switch {
	case v.retired:
		return 0
	case v.unavailable == reason.Warming:
		if lost := c.life.lostAt(); lost.After(since) {
			since = lost
		}
	case newest && v.unavailable == reason.None && !v.reloads.IsZero():
		since = v.reloads
	default:
		return 0
	}
	return max(0, within-time.Since(since))
}

// TakeForwardSlot reports whether a list may be forwarded instead of waiting while the state is loaded: a few
// may, while there is none.
func (c *Collection) TakeForwardSlot() bool {
	return c.view.Load().unavailable == reason.Warming && c.forwardSlotsLeft.Load() > 0 && c.forwardSlotsLeft.Add(-1) >= 0
}

// LoadError is the reason why the last try to load the state has failed: what the upstream answered, for example.
// It is nil if there was no try yet, or once a state was loaded.
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

// idle is the time for which no request has asked for the collection, by the clock that nobody sets and that stands
// still while the machine does.
func (c *Collection) idle(now time.Time) time.Duration { return now.Sub(*c.lastUse.Load()) }

// requestProbe tells the feed that somebody waits for a newer revision, or is about to.
func (c *Collection) requestProbe() {
	select {
	case c.probeRequests <- struct{}{}:
	default: // it knows already
	}
}

// loadAnew has the feed load the state anew, beside the one that is known.
func (c *Collection) loadAnew() {
	select {
	case c.outOfDate <- struct{}{}:
	default: // it will
	}
}

// pause waits for d between two tries to ask the upstream, and for least, for which the upstream wants to be
// spared. Once somebody requests a probe, it waits for least and for aMoment only.
func (c *Collection) pause(ctx context.Context, d, least time.Duration) bool {
	begun, timer := time.Now(), time.NewTimer(max(d, least))
	defer timer.Stop()
	select {
	case <-c.probeRequests:
		return clock.Sleep(ctx, min(max(d, least), max(aMoment, least))-time.Since(begun))
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
