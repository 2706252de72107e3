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
	// History is the duration for which states are kept.
	History time.Duration
	// Staleness bounds the age of the newest state: that state has every write that the upstream had accepted that long
	// ago. An older one is not given.
	Staleness time.Duration
	// Wait bounds how long a request waits for the feed to reach its revision.
	Wait time.Duration
}

// Collection is one resource in one representation, and what is known about it. Its methods are safe for concurrent
// use; reading takes no lock.
type Collection struct {
	key    CollectionKey
	limits Limits
	shared
	counts *collectionCounts // of all collections with this key

	// view is what is known now.
	view atomic.Pointer[View]
	// freshness is a copy of the feed's Freshness, by which requests foresee whether a proof can come in time.
	freshness atomic.Pointer[source.Freshness]
	// loadError is the error of the last try to load a state; nil if that succeeded.
	loadError atomic.Pointer[error]
	// lastUse is the time of the last request for the collection.
	lastUse atomic.Pointer[time.Time]
	// smallListsInFlight is the number of small lists that are being forwarded.
	smallListsInFlight atomic.Int32
	// forwardSlotsLeft is the number of lists that may still be forwarded, instead of waiting, while a state is loaded.
	forwardSlotsLeft atomic.Int32

	// probeRequests wakes the feed when a request waits for a revision that the feed has not reached, or for a later probe.
	probeRequests chan struct{}
	// reloadRequests wakes the feed when the state must be loaded anew.
	reloadRequests chan struct{}
	// awaitedProbe is the number of the first probe that can prove the newest state for all requests that wait for a proof.
	awaitedProbe atomic.Uint64
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
	// highestSeen is the highest revision that the upstream has given since the last drop.
	highestSeen uint64
	// pendingProbes are the probes whose revision the interval has not reached yet, by ascending revision.
	pendingProbes []probeResult
	// versions is the history that is written to; views hold copies.
	versions index.History
	// usedBytes is the part of the budget that the collection uses.
	usedBytes int64
	// checkpoints record which revision was reached when, so that history can be trimmed by age.
	checkpoints []checkpoint
}

// shared is what all collections share.
type shared struct {
	budget *budget
	outage func() clock.Outage  // [Config.Outage]
	pacer  *watch.Pacer         // spreads the ends of watches
	probes *source.ProbeCounter // numbers the probes
	// loadSlots is a semaphore: a feed sends a value before it loads, and receives one afterwards.
	loadSlots chan struct{}
}

// newCollection returns a collection that knows nothing yet.
func newCollection(key CollectionKey, limits Limits, s shared, counts *collectionCounts) *Collection {
	c := &Collection{
		key:            key,
		limits:         limits,
		shared:         s,
		counts:         counts,
		probeRequests:  make(chan struct{}, 1),
		reloadRequests: make(chan struct{}, 1),
	}
	c.Touch()
	c.forwardSlotsLeft.Store(loadForwards)
	c.publishFreshness(source.Freshness{})
	c.view.Store(&View{
		unavailable: reason.Warming, unavailableSince: time.Now(),
		replacedCh: make(chan struct{}), freshenedCh: make(chan struct{}),
	})
	return c
}

// NotOlderThan returns the newest state, if that is at revision minRevision or later. With 0 any revision will do. It
// waits for up to Limits.Wait for the feed to get there.
func (c *Collection) NotOlderThan(ctx context.Context, minRevision uint64) (Snapshot, reason.Reason) {
	return c.reach(ctx, func(v *View) (Snapshot, reason.Reason) { return v.notOlder(c.now(), minRevision) })
}

// Exact returns the state at a revision, for lists at exactly that revision and for the next pages of a list. It waits
// for up to Limits.Wait for the feed to get there.
func (c *Collection) Exact(ctx context.Context, revision uint64) (Snapshot, reason.Reason) {
	return c.reach(ctx, func(v *View) (Snapshot, reason.Reason) { return v.exact(c.now(), revision) })
}

// WhyNotOlderThan returns the reason why [Collection.NotOlderThan] would find no state, however long it waited; None if it
// may find one. It does not wait, and does not count as a use of the collection.
func (c *Collection) WhyNotOlderThan(minRevision uint64) reason.Reason {
	_, why := c.view.Load().notOlder(c.now(), minRevision)
	return unlessItMayCome(why)
}

// WhyNotExact is WhyNotOlderThan for [Collection.Exact].
func (c *Collection) WhyNotExact(revision uint64) reason.Reason {
	_, why := c.view.Load().exact(c.now(), revision)
	return unlessItMayCome(why)
}

// unlessItMayCome returns the reason why there is no state; None if the state may come while a request waits.
func unlessItMayCome(why reason.Reason) reason.Reason {
	if why == reason.Warming || why == reason.NotProven {
		return reason.None
	}
	return why
}

// now returns the time, and what decides now whether a state is too old.
func (c *Collection) now() moment {
	return moment{at: time.Now(), bound: c.limits.Staleness, outage: c.outage()}
}

// reach asks for a state until the feed has reached it, for up to Limits.Wait. If the state is NotProven even then, the
// upstream may be further, and the feed may not know: reach requests a probe for later requests.
func (c *Collection) reach(ctx context.Context, ask func(*View) (Snapshot, reason.Reason)) (Snapshot, reason.Reason) {
	c.Touch()
	snap, why := c.await(ctx, c.limits.Wait, reason.NotProven, (*View).replaced, ask)
	if why == reason.NotProven {
		c.requestProbe()
	}
	return snap, why
}

// await calls ask with one view after the other, until the result is another reason than notYet. It returns the last result
// after maxWait, when ctx is done, or when no view can follow. changed returns the channel of a view that is closed when a
// later view may give another result.
func (c *Collection) await(ctx context.Context, maxWait time.Duration, notYet reason.Reason,
	changed func(*View) <-chan struct{}, ask func(*View) (Snapshot, reason.Reason),
) (Snapshot, reason.Reason) {
	v := c.view.Load()
	snap, why := ask(v)
	if why != notYet {
		return snap, why // without a timer, since this is the usual case
	}
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	for why == notYet && !v.retired {
		select {
		case <-changed(v):
			v = c.view.Load()
			snap, why = ask(v)
		case <-timer.C:
			return snap, why
		case <-ctx.Done():
			return snap, why
		}
	}
	return snap, why
}

// AwaitLoad waits for up to maxWait while no state is known and one is being loaded. With forNewest, for a list of the
// newest state, it also waits while a load beside the known state is under way. It returns the reason why there is no state
// then; None if there is one.
func (c *Collection) AwaitLoad(ctx context.Context, maxWait time.Duration, forNewest bool) reason.Reason {
	_, why := c.await(ctx, maxWait, reason.Warming, (*View).replaced, func(v *View) (Snapshot, reason.Reason) {
		if forNewest && v.isReloading() {
			return Snapshot{}, reason.Warming
		}
		return Snapshot{}, v.unavailable
	})
	return why
}

// LoadTimeLeft returns what is left of the time limit for a load that is under way; 0 if no time is left, or no load is
// under way. The limit counts from the collection's beginning, or from the loss of its last state. With forNewest, for a
// list of the newest state, a load beside the known state counts, too, from the beginning of the load.
func (c *Collection) LoadTimeLeft(limit time.Duration, forNewest bool) time.Duration {
	v := c.view.Load()
	switch {
	case v.unavailable == reason.Warming && !v.retired:
		return max(0, limit-time.Since(v.unavailableSince))
	case forNewest && v.isReloading():
		return max(0, limit-time.Since(v.reloadingSince))
	}
	return 0
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

// idleFor returns the time since the last request for the collection, by the monotonic clock. That clock stands still
// while the machine is suspended, so that nothing is dropped as idle when it wakes.
func (c *Collection) idleFor(now time.Time) time.Duration { return now.Sub(*c.lastUse.Load()) }

// requestProbe asks the feed for a probe, since a request waits for a newer revision, or is about to.
func (c *Collection) requestProbe() { notify(c.probeRequests) }

// requestReload asks the feed to load the state anew, beside the one that is known.
func (c *Collection) requestReload() { notify(c.reloadRequests) }

// notify sends to a channel with room for one value, unless a value is there that was not received yet.
func notify(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
