package snapshot

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/watch"
)

// Limits bound what a collection keeps and answers.
type Limits struct {
	// History is the duration for which states are kept.
	History time.Duration
	// Staleness is the age at which the newest state is no longer given. The age counts from the sending of the last probe
	// that has proven the state.
	Staleness time.Duration
	// Wait is the longest time for which a request waits until the feed reaches the revision that the request names.
	Wait time.Duration
}

// Collection is one resource in one representation. Its methods are safe for concurrent use. It has two halves:
//
//   - The feed, one goroutine, loads a state and watches the upstream. Under mu it keeps the history, and after each change
//     it publishes a [View].
//   - Requests read the newest View, without a lock. They may wait for a later one.
//
// A View is immutable. It has the states at all revisions of one interval, From to To. The newest state is at To.
//
// A probe asks the upstream for its revision. Once the feed has reached that revision, the state is proven to have every
// write that the upstream had accepted before the probe was sent.
//
// In an epoch, each known state follows from the one before. A drop, or a load that replaces the known states, begins the next
// epoch. A request that has found a state in one epoch is not answered with it in the next.
type Collection struct {
	key    CollectionKey
	limits Limits
	shared shared
	// counts are shared by all collections with this key.
	counts *collectionCounts

	// From the feed to requests:

	// view is the newest View.
	view atomic.Pointer[View]
	// freshness is a copy of the feed's Freshness. It shows requests whether a probe can prove the state in time.
	freshness atomic.Pointer[source.Freshness]
	// loadError has the error of the last load: nil if the load succeeded. The pointer itself is nil until the first load ends.
	loadError atomic.Pointer[error]

	// About requests:

	// lastUse is the time at which Touch was called last.
	lastUse atomic.Pointer[time.Time]
	// smallListsInFlight is the number of small lists that are being forwarded.
	smallListsInFlight atomic.Int32
	// forwardSlotsLeft is the number of lists that may still be forwarded during the current load. All others wait for the
	// load.
	forwardSlotsLeft atomic.Int32

	// From requests to the feed. These channels wake it, and have room for one value (see notify):

	probeRequests  chan struct{} // requestProbe was called
	reloadRequests chan struct{} // requestReload was called
	newWaiters     chan struct{} // awaitedProbe has grown
	// awaitedProbe is the highest number of a probe for which a request waits. A later probe serves the request, too.
	awaitedProbe atomic.Uint64

	// lastObjectNumber is the last index.Object.Number that the feed gave to a version of an object. Only the feed uses it.
	lastObjectNumber uint64

	// mu guards the fields below, which the feed and the janitor write.
	mu sync.Mutex
	// highestSeen is the highest revision that the upstream has given since the last drop.
	highestSeen uint64
	// usedBytes is the part of the budget that the collection uses.
	usedBytes int64
	// checkpoints record which revision was the newest at which time, so that the history can be trimmed by age.
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
		provenCh:         make(chan struct{}),
	})
	return c
}

// NotOlderThan returns the newest state if it is at minRevision or later; 0 accepts any revision. NotOlderThan waits up to
// Limits.Wait until the feed has reached minRevision. If there is no such state even then, it returns the reason.
func (c *Collection) NotOlderThan(ctx context.Context, minRevision uint64) (Snapshot, reason.Reason) {
	return c.awaitRevision(ctx, func(v *View) (Snapshot, reason.Reason) { return v.notOlder(c.now(), minRevision) })
}

// Exact returns the state at a revision, for lists at exactly that revision and for the next pages of a list. It waits up to
// Limits.Wait until the feed has reached the revision. If the state is not known even then, it returns the reason.
func (c *Collection) Exact(ctx context.Context, revision uint64) (Snapshot, reason.Reason) {
	return c.awaitRevision(ctx, func(v *View) (Snapshot, reason.Reason) { return v.exact(c.now(), revision) })
}

// WhyNoStateNotOlderThan returns the reason why [Collection.NotOlderThan] cannot find a state, however long it waits; None if
// it may find one. WhyNoStateNotOlderThan itself does not wait, and does not count as a use of the collection.
func (c *Collection) WhyNoStateNotOlderThan(minRevision uint64) reason.Reason {
	_, why := c.view.Load().notOlder(c.now(), minRevision)
	return lastingReason(why)
}

// WhyNoStateAt is WhyNoStateNotOlderThan for [Collection.Exact].
func (c *Collection) WhyNoStateAt(revision uint64) reason.Reason {
	_, why := c.view.Load().exact(c.now(), revision)
	return lastingReason(why)
}

// lastingReason returns the reason why if it stays, however long a request waits. It returns None if the state may come.
func lastingReason(why reason.Reason) reason.Reason {
	if why == reason.Warming || why == reason.NotProven {
		return reason.None
	}
	return why
}

// now returns the current moment: the time, the staleness bound and the upstream's outage.
func (c *Collection) now() moment {
	return moment{at: time.Now(), staleness: c.limits.Staleness, outage: c.shared.outage()}
}

// awaitRevision is awaitWhileNotProven for up to Limits.Wait. If the reason is NotProven even then, the upstream may be ahead
// of the feed, so awaitRevision requests a probe, which helps later requests.
func (c *Collection) awaitRevision(ctx context.Context, read readFunc) (Snapshot, reason.Reason) {
	c.Touch()
	snap, why := c.awaitWhileNotProven(ctx, c.limits.Wait, read)
	if why == reason.NotProven {
		c.requestProbe()
	}
	return snap, why
}

// readFunc reads a state from a View, or returns the reason why the View has none to give.
type readFunc func(*View) (Snapshot, reason.Reason)

// awaitWhileNotProven calls read with each View, from the newest on, until the reason is not NotProven any more. See await.
func (c *Collection) awaitWhileNotProven(ctx context.Context, maxWait time.Duration, read readFunc) (Snapshot, reason.Reason) {
	return c.await(ctx, maxWait, reason.NotProven, whenReplaced, read)
}

// await calls read with the newest View, and with later ones as long as the reason is notYet. It returns the last result of
// read. It gives up after maxWait, when ctx is done, or when the View is retired, since no other follows then. whenChanged is
// whenReplaced or whenProven: it returns a channel that is closed when a later View may give another result.
func (c *Collection) await(ctx context.Context, maxWait time.Duration, notYet reason.Reason,
	whenChanged func(*View) <-chan struct{}, read readFunc,
) (Snapshot, reason.Reason) {
	v := c.view.Load()
	snap, why := read(v)
	if why != notYet {
		return snap, why // without a timer, since this is the usual case
	}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	for why == notYet && !v.retired {
		select {
		case <-whenChanged(v):
			v = c.view.Load()
			snap, why = read(v)
		case <-ctx.Done():
			return snap, why
		}
	}
	return snap, why
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
