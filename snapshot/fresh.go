package snapshot

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
)

// LastProbe returns the number of the last probe that was sent for any collection. (A load counts as a probe, too.) It
// is never 0.
func (c *Collections) LastProbe() uint64 { return c.probes.Last() }

const (
	// maxSmallWork is the work of a small list at most, in bytes that kube-apiserver encodes for it. kube-apiserver needs
	// some milliseconds for so much. A proof that memory is up to date may take a second, so small lists are forwarded.
	maxSmallWork = 256 << 10
	// maxSmallForwarded is the number of small lists of one collection that are forwarded at the same time.
	maxSmallForwarded = 4
)

// StateUnavailable returns the reason why [Collection.NotOlderThan] (or [Collection.Exact], if exact) would find no state
// for a revision, however long it waited; None if it may find a state. It does not wait, and does not count as a use of
// the collection.
func (c *Collection) StateUnavailable(revision uint64, exact bool) (why reason.Reason) {
	v := c.view.Load()
	if exact {
		_, why = v.exact(c.moment(), revision)
	} else {
		_, why = v.notOlder(c.moment(), revision)
	}
	if why == reason.Warming || why == reason.NotProven {
		return reason.None // the state may come while a request waits
	}
	return why
}

// ConsistentUnavailable returns the reason why [Collection.Consistent] would find no state for the query q within maxWait;
// None if it may find one. It does not wait, and does not count as a use of the collection.
func (c *Collection) ConsistentUnavailable(q index.Query, after uint64, maxWait time.Duration) reason.Reason {
	v := c.view.Load()
	now := time.Now()
	if unavailable := c.whyNotConsistent(v, now); unavailable != reason.None {
		return unavailable
	}
	switch {
	case q.Fields != nil && !v.envelope.CanSelect(q.Fields):
		return reason.NotCanonical
	case v.currentAt.Number > after:
		return reason.None
	case c.forecast.Load().EarliestProof().Sub(now) > maxWait:
		return reason.NotProven
	}
	return reason.None
}

// whyNotConsistent returns the reason why Consistent would find no state in v for any query: there is no state, nothing
// can prove that the state is the newest, or the state is too old. It returns None if Consistent may find one.
func (c *Collection) whyNotConsistent(v *View, now time.Time) reason.Reason {
	switch {
	case v.unavailable != reason.None:
		return v.unavailable
	case c.forecast.Load().NoBookmarks():
		return reason.NotProven
	case clock.Age(v.currentAt.Sent, now) >= c.limits.Staleness:
		return reason.Stale
	}
	return reason.None
}

// ForwardSmall reports whether q, a list of the newest state, is better forwarded than proven: q is small, no probe with a
// number higher than after has proven the state yet, and few other lists are being forwarded. If so, the caller must call
// done when the list was forwarded.
func (c *Collection) ForwardSmall(q index.Query, after uint64) (done func(), forward bool) {
	v := c.view.Load()
	if v.currentAt.Number > after {
		return nil, false
	}
	return c.forwardSmall(v, q)
}

// ForwardRest reports whether q, a page of a list that kube-apiserver began at a revision, is better forwarded than waited
// for: memory has not reached the revision, q is small, and few other lists are being forwarded. If so, the caller must
// call done when the page was forwarded.
func (c *Collection) ForwardRest(q index.Query, revision uint64) (done func(), forward bool) {
	v := c.view.Load()
	if v.To >= revision {
		return nil, false
	}
	done, forward = c.forwardSmall(v, q)
	if forward {
		c.requestProbe() // so that memory reaches the revision before the next page is asked for
	}
	return done, forward
}

// forwardSmall reports whether q is small and few other lists are being forwarded. If so, the caller must call done when q
// was forwarded.
func (c *Collection) forwardSmall(v *View, q index.Query) (done func(), forward bool) {
	if v.unavailable != reason.None || v.newest.Work(q) > maxSmallWork {
		return nil, false
	}
	if c.smallListsInFlight.Add(1) > maxSmallForwarded {
		c.smallListsInFlight.Add(-1)
		return nil, false
	}
	return func() { c.smallListsInFlight.Add(-1) }, true
}

// Consistent returns the newest state when a probe with a number higher than after has proven it, and waits at most
// maxWait for the proof. The state then has everything that was written before that probe was sent.
//
// A probe proves a state in one of two ways. It has loaded the state. Or it has asked for the upstream's current revision,
// and the feed's stream, or a progress watch, has sent everything up to that revision.
func (c *Collection) Consistent(ctx context.Context, after uint64, maxWait time.Duration) (Snapshot, reason.Reason) {
	c.Touch()
	if snap, why := c.view.Load().consistent(after); why != reason.NotProven {
		return snap, why
	}
	c.awaitProbe(after + 1)
	if !c.view.Load().streaming {
		c.requestProbe() // ends the feed's pause between two tries: the upstream may answer again
	}
	return c.await(ctx, maxWait, reason.NotProven, (*View).freshened, func(v *View) (Snapshot, reason.Reason) {
		return v.consistent(after)
	})
}

// consistent returns the newest state if a probe with a number higher than after has proven it. For 0 nothing is proven:
// a request without a number came at an unknown time.
func (v *View) consistent(after uint64) (Snapshot, reason.Reason) {
	switch {
	case v.unavailable != reason.None:
		return Snapshot{}, v.unavailable
	case after == 0, v.currentAt.Number <= after:
		return Snapshot{}, reason.NotProven
	}
	return v.state(), reason.None
}

// awaitProbe records that a request waits for the probe with a number, or a later one, and wakes the feed.
func (c *Collection) awaitProbe(number uint64) {
	for current := c.awaitedProbe.Load(); current < number; current = c.awaitedProbe.Load() {
		if c.awaitedProbe.CompareAndSwap(current, number) {
			select {
			case c.newWaiters <- struct{}{}:
			default: // the feed has been woken, and has not read awaitedProbe yet
			}
			return
		}
	}
}

// publishForecast gives requests for the newest state a copy of the feed's state machine.
func (c *Collection) publishForecast(f source.Freshness) { c.forecast.Store(&f) }
