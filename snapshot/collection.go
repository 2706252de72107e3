package snapshot

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

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
	// Staleness bounds the age of the newest state: a state of that age is not given. The age counts from the time at which
	// the last probe that has proven the state was sent.
	Staleness time.Duration
	// Wait bounds how long a request waits for the feed to reach its revision.
	Wait time.Duration
}

// Collection is one resource in one representation, with the states that are known: those at the revisions of one interval,
// whose end is the newest state. Its methods are safe for concurrent use. Reading takes no lock.
//
// A probe asks the upstream for its revision. Once the feed has reached that revision, the probe proves that the state has
// every write that the upstream had accepted before the probe was sent.
//
// An epoch ends when the known states are dropped, or replaced by a load. A state that was read in one epoch is not given in
// the next.
type Collection struct {
	key    CollectionKey
	limits Limits
	shared shared
	// counts are shared by all collections with this key.
	counts *collectionCounts

	// view is what is known now.
	view atomic.Pointer[View]
	// freshness is a copy of the feed's Freshness. It shows requests whether a proof can come in time.
	freshness atomic.Pointer[source.Freshness]
	// loadError points to the error of the last load, which is nil if the load succeeded. It is nil before the end of a load.
	loadError atomic.Pointer[error]
	// lastUse is the time at which Touch was called last.
	lastUse atomic.Pointer[time.Time]
	// smallListsInFlight is the number of small lists that are being forwarded.
	smallListsInFlight atomic.Int32
	// forwardSlotsLeft is the number of slots that TakeForwardSlot can still give; forwardSlotsPerLoad at the beginning of a
	// load.
	forwardSlotsLeft atomic.Int32

	// These channels wake the feed. They have room for one value (see notify).
	probeRequests  chan struct{} // requestProbe was called
	reloadRequests chan struct{} // requestReload was called
	newWaiters     chan struct{} // awaitedProbe has grown
	// awaitedProbe is the highest number of a probe for which a request waits. A proof by this probe or a later one is enough
	// for all requests that wait.
	awaitedProbe atomic.Uint64
	// lastObjectNumber is the last index.Object.Number that the feed gave to a version of an object. Only the feed uses it.
	lastObjectNumber uint64

	// mu guards the fields below, which the feed and the janitor write.
	mu sync.Mutex
	// retired reports whether the collection was dropped for ever.
	retired bool
	epoch   uint64
	// highestSeen is the highest revision that the upstream has given since the last drop.
	highestSeen uint64
	// pendingProbes are the probes whose revision the interval has not reached yet, in the order in which they were sent.
	// Their revisions ascend, since a probe that gives a lower revision than an earlier one is an error (see
	// recordRevision).
	pendingProbes []probeResult
	// versions is the history. Views hold copies of it, which are not changed.
	versions index.History
	// usedBytes is the part of the budget that the collection uses.
	usedBytes int64
	// checkpoints say which revision was the interval's end at which time, so that the history can be trimmed by age.
	checkpoints []checkpoint
}

// shared is what all collections share.
type shared struct {
	budget *budget
	// outage is [Config.Outage].
	outage func() clock.Outage
	// pacer spreads the ends of watches.
	pacer *watch.Pacer
	// probes numbers the probes.
	probes *source.ProbeCounter
	// loadSlots bounds the number of loads at the same time.
	loadSlots *semaphore.Weighted
}

// newCollection returns a collection that knows nothing yet.
func newCollection(key CollectionKey, limits Limits, s shared, counts *collectionCounts) *Collection {
	c := &Collection{
		key:            key,
		limits:         limits,
		shared:         s,
		counts:         counts,
		probeRequests:  make(chan struct{}, 1),
		newWaiters:     make(chan struct{}, 1),
		reloadRequests: make(chan struct{}, 1),
	}
	c.Touch()
	c.forwardSlotsLeft.Store(forwardSlotsPerLoad)
	c.publishFreshness(source.Freshness{})
	c.view.Store(&View{
		unavailable:      reason.Warming,
		unavailableSince: time.Now(),
		replacedCh:       make(chan struct{}),
		freshenedCh:      make(chan struct{}),
	})
	return c
}

// NotOlderThan returns the newest state, if that is at minRevision or later; 0 accepts any revision. It waits for up to
// Limits.Wait until the feed has reached minRevision. If it finds no state, it returns the reason.
func (c *Collection) NotOlderThan(ctx context.Context, minRevision uint64) (Snapshot, reason.Reason) {
	return c.reach(ctx, func(v *View) (Snapshot, reason.Reason) { return v.notOlder(c.now(), minRevision) })
}

// Exact returns the state at a revision, for lists at exactly that revision and for the next pages of a list. It waits for up
// to Limits.Wait until the feed has reached the revision. If it finds no state, it returns the reason.
func (c *Collection) Exact(ctx context.Context, revision uint64) (Snapshot, reason.Reason) {
	return c.reach(ctx, func(v *View) (Snapshot, reason.Reason) { return v.exact(c.now(), revision) })
}

// WhyNoStateNotOlderThan returns the reason why [Collection.NotOlderThan] would find no state, however long it waited; None
// if it may find one. It does not wait, and does not count as a use of the collection.
func (c *Collection) WhyNoStateNotOlderThan(minRevision uint64) reason.Reason {
	_, why := c.view.Load().notOlder(c.now(), minRevision)
	return lastingReason(why)
}

// WhyNoStateAt returns the reason why [Collection.Exact] would find no state, however long it waited; None if it may find
// one. It does not wait, and does not count as a use of the collection.
func (c *Collection) WhyNoStateAt(revision uint64) reason.Reason {
	_, why := c.view.Load().exact(c.now(), revision)
	return lastingReason(why)
}

// lastingReason returns a reason why there is no state, or None if the state may come while a request waits.
func lastingReason(why reason.Reason) reason.Reason {
	if why == reason.Warming || why == reason.NotProven {
		return reason.None
	}
	return why
}

// now returns the current moment: the time, the staleness bound and the upstream's outage.
func (c *Collection) now() moment {
	return moment{at: time.Now(), bound: c.limits.Staleness, outage: c.shared.outage()}
}

// reach waits for up to Limits.Wait until ask returns another reason than NotProven. If it does not, the upstream may have
// reached the state without the feed's knowledge. So reach requests a probe, which helps later requests.
func (c *Collection) reach(ctx context.Context, ask func(*View) (Snapshot, reason.Reason)) (Snapshot, reason.Reason) {
	c.Touch()
	snap, why := c.await(ctx, c.limits.Wait, reason.NotProven, (*View).replaced, ask)
	if why == reason.NotProven {
		c.requestProbe()
	}
	return snap, why
}

// await calls ask with one view after the other until ask returns another reason than notYet. It also stops after maxWait,
// when ctx is done, or when no view can follow. It returns the last result of ask. changed is a method of View whose channel
// is closed when ask may return another result for a later view.
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

// LoadKind says which loads a request waits for.
type LoadKind int

const (
	// FirstLoad is a load while no state is known.
	FirstLoad LoadKind = iota
	// AnyLoad is a FirstLoad, or a load that will replace the known state. Lists of the newest state wait for both, since no
	// probe proves the known state while another is loaded.
	AnyLoad
)

// AwaitLoad waits for up to maxWait while a load of this kind is under way. If the load goes on even then, it returns
// Warming. Otherwise it returns the reason why there is no state, or None if there is one.
func (c *Collection) AwaitLoad(ctx context.Context, maxWait time.Duration, kind LoadKind) reason.Reason {
	_, why := c.await(ctx, maxWait, reason.Warming, (*View).replaced, func(v *View) (Snapshot, reason.Reason) {
		if kind == AnyLoad && v.isReloading() {
			return Snapshot{}, reason.Warming
		}
		return Snapshot{}, v.unavailable
	})
	return why
}

// LoadTimeLeft returns what is left of the time limit for a load of this kind, or 0 if no such load is under way. For a
// FirstLoad, the limit counts from the beginning of the collection or the loss of its last state. For a load that will
// replace the known state, it counts from the beginning of the load.
func (c *Collection) LoadTimeLeft(limit time.Duration, kind LoadKind) time.Duration {
	v := c.view.Load()
	switch {
	case v.unavailable == reason.Warming && !v.retired:
		return max(0, limit-time.Since(v.unavailableSince))
	case kind == AnyLoad && v.isReloading():
		return max(0, limit-time.Since(v.reloadingSince))
	}
	return 0
}

// LoadError returns the error of the last load, such as the upstream's answer. It is nil if no load has ended yet, or if the
// last one succeeded.
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

// idleFor returns the time since the last use of the collection, by the monotonic clock. While the machine is suspended, that
// clock stands still, so no collection is dropped as idle when the machine wakes.
func (c *Collection) idleFor(now time.Time) time.Duration { return now.Sub(*c.lastUse.Load()) }

// requestProbe makes the feed send a probe soon. If the feed pauses after a failure, the pause ends early.
func (c *Collection) requestProbe() { notify(c.probeRequests) }

// requestReload makes the feed load another state. The known one stays until the load has succeeded.
func (c *Collection) requestReload() { notify(c.reloadRequests) }

// notify sends to a channel with room for one value. It does nothing if the channel is full, since the receiver will wake.
func notify(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
