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
	// Staleness is the age at which the newest state is no longer given. The age counts from the time at which the last probe
	// that has proven the state was sent.
	Staleness time.Duration
	// Wait bounds how long a request waits until the feed reaches the revision that the request names.
	Wait time.Duration
}

// Collection is one resource in one representation. It knows the states at all revisions of one interval, whose end is the
// newest state. Its methods are safe for concurrent use, and readers take no lock.
//
// A probe asks the upstream for its revision. Once the feed has reached that revision, the state is proven to have every
// write that the upstream had accepted before the probe was sent.
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
	// freshness is a copy of the feed's Freshness, which shows requests whether a proof can come in time.
	freshness atomic.Pointer[source.Freshness]
	// loadError points to the error of the last load, or to nil if that load succeeded; nil until a load has ended.
	loadError atomic.Pointer[error]
	// lastUse is the time at which Touch was called last.
	lastUse atomic.Pointer[time.Time]
	// smallListsInFlight is the number of small lists that are being forwarded.
	smallListsInFlight atomic.Int32
	// forwardSlotsLeft is the number of slots that TakeForwardSlot can still give. Each load begins with forwardSlotsPerLoad.
	forwardSlotsLeft atomic.Int32

	// These channels wake the feed. They have room for one value (see notify).
	probeRequests  chan struct{} // requestProbe was called
	reloadRequests chan struct{} // requestReload was called
	newWaiters     chan struct{} // awaitedProbe has grown
	// awaitedProbe is the highest number of a probe for which a request waits. Later probes serve, too.
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
	// checkpoints record the interval's end at some times, so that the history can be trimmed by age.
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

// NotOlderThan returns the newest state once the feed has reached minRevision, for which it waits up to Limits.Wait; 0
// accepts any revision. If there is no such state, it returns the reason.
func (c *Collection) NotOlderThan(ctx context.Context, minRevision uint64) (Snapshot, reason.Reason) {
	return c.reach(ctx, func(v *View) (Snapshot, reason.Reason) { return v.notOlder(c.now(), minRevision) })
}

// Exact returns the state at a revision, for lists at exactly that revision and for the next pages of a list. It waits for up
// to Limits.Wait until the feed has reached the revision. If the state is not known, it returns the reason.
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

// lastingReason returns why, or None if the state may still come while a request waits.
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

// reach waits for up to Limits.Wait until ask returns another reason than NotProven. If that wait is in vain, the upstream
// may be ahead of the feed, so reach requests a probe, which helps later requests.
func (c *Collection) reach(ctx context.Context, ask func(*View) (Snapshot, reason.Reason)) (Snapshot, reason.Reason) {
	c.Touch()
	snap, why := c.await(ctx, c.limits.Wait, reason.NotProven, (*View).replaced, ask)
	if why == reason.NotProven {
		c.requestProbe()
	}
	return snap, why
}

// await calls ask with one view after the other until ask returns another reason than notYet. It also stops after maxWait,
// when ctx is done, or when no view can follow. It returns the last result of ask. changed is the method of View with the
// channel that is closed when a later view may give ask another result.
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
	// probe proves the known state during a load.
	AnyLoad
)

// AwaitLoad waits for up to maxWait while a load of this kind is under way. It returns Warming if the load still goes on
// then; otherwise the reason why there is no state, or None if there is one.
func (c *Collection) AwaitLoad(ctx context.Context, maxWait time.Duration, kind LoadKind) reason.Reason {
	_, why := c.await(ctx, maxWait, reason.Warming, (*View).replaced, func(v *View) (Snapshot, reason.Reason) {
		if kind == AnyLoad && v.isReloading() {
			return Snapshot{}, reason.Warming
		}
		return Snapshot{}, v.unavailable
	})
	return why
}

// LoadTimeLeft returns what is left of the time limit of a load of this kind, or 0 if none is under way. The time of a
// FirstLoad counts from the beginning of the collection or the loss of its last state. The time of a load that will replace
// the known state counts from the beginning of the load.
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

// idleFor returns the time since the last use of the collection, by the monotonic clock. That clock stands still while the
// machine is suspended, so no collection is dropped as idle when the machine wakes.
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
