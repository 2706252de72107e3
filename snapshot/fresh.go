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
	// smallList is the most work, in bytes that kube-apiserver encodes, that a small list makes. It takes some
	// milliseconds, and waiting for memory may take a second: so small lists are forwarded.
	smallList = 256 << 10
	// maxSmallForwarded is the number of small lists of one collection that are forwarded at the same time.
	maxSmallForwarded = 4
)

// StateUnavailable returns the reason why NotOlderThan for a revision (or Exact, if exact) would find no state, however
// long it waited; None if it may find one. It does not wait, and does not count as a use of the collection.
func (c *Collection) StateUnavailable(rev uint64, exact bool) (why reason.Reason) {
	if v := c.view.Load(); exact {
		_, why = v.exact(c.moment(), rev)
	} else {
		_, why = v.notOlder(c.moment(), rev)
	}
	if why == reason.Warming || why == reason.NotProven {
		return reason.None
	}
	return why
}

// ConsistentUnavailable returns the reason why Consistent would find no state; None if it may find one. It does
// not wait, and does not count as a use of the collection.
func (c *Collection) ConsistentUnavailable(q index.Query, after uint64, atMost time.Duration) reason.Reason {
	v, now := c.view.Load(), time.Now()
	if unavailable := c.unavailableNow(v, now); unavailable != reason.None {
		return unavailable
	}
	switch {
	case q.Fields != nil && !v.envelope.CanSelect(q.Fields):
		return reason.NotCanonical
	case v.currentAt.Number > after:
		return reason.None
	case c.forecast.Load().Earliest().Sub(now) > atMost:
		return reason.NotProven
	}
	return reason.None
}

// unavailableNow returns the reason why Consistent would find no state in v, whatever the list asks for: there is no
// state, or nothing can prove that the state is the newest, or the state is too old.
func (c *Collection) unavailableNow(v *View, now time.Time) reason.Reason {
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

// ForwardSmall reports whether the list q of the newest state is better forwarded than proven, since it is
// small, nothing proves it yet, and few others are being forwarded. Then over must be called when it was.
func (c *Collection) ForwardSmall(q index.Query, after uint64) (over func(), forward bool) {
	v := c.view.Load()
	if v.currentAt.Number > after {
		return nil, false
	}
	return c.forwardSmall(v, q)
}

// ForwardRest reports whether q, the rest of a list at a revision, is better forwarded than waited for:
// kube-apiserver has begun that list, memory has not reached its revision, and q is small. Then over must be called
// when it was.
func (c *Collection) ForwardRest(q index.Query, revision uint64) (over func(), forward bool) {
	v := c.view.Load()
	if v.To >= revision {
		return nil, false
	}
	over, forward = c.forwardSmall(v, q)
	if forward {
		c.requestProbe() // for the pages that follow
	}
	return over, forward
}

// forwardSmall reports whether q is small and few others are being forwarded. Then over must be called when it was.
func (c *Collection) forwardSmall(v *View, q index.Query) (over func(), forward bool) {
	if v.unavailable != reason.None || v.newest.Work(q) > smallList {
		return nil, false
	}
	if c.smallListsInFlight.Add(1) > maxSmallForwarded {
		c.smallListsInFlight.Add(-1)
		return nil, false
	}
	return func() { c.smallListsInFlight.Add(-1) }, true
}

// Consistent returns the newest state once it is proven, and waits for the proof for atMost. The proof is a probe with
// a number higher than after: the state then holds everything that was written before that probe was sent. The
// probe has either loaded the state; or it has asked for the upstream's current revision, and the feed's own
// stream, or a progress watch, has sent everything up to that revision.
func (c *Collection) Consistent(ctx context.Context, after uint64, atMost time.Duration) (Snapshot, reason.Reason) {
	c.Touch()
	if snap, why := c.view.Load().fresh(after); why != reason.NotProven {
		return snap, why
	}
	c.announceWaiter(after + 1)
	if !c.view.Load().streaming {
		c.requestProbe() // the upstream may be there again
	}
	return c.await(ctx, atMost, reason.NotProven, (*View).freshened, func(v *View) (Snapshot, reason.Reason) {
		return v.fresh(after)
	})
}

// fresh returns the newest state if it holds everything that was written before a probe with a
// number higher than after was sent. It is never proven for 0: nobody knows when such a request came.
func (v *View) fresh(after uint64) (Snapshot, reason.Reason) {
	switch {
	case v.unavailable != reason.None:
		return Snapshot{}, v.unavailable
	case after == 0, v.currentAt.Number <= after:
		return Snapshot{}, reason.NotProven
	}
	return v.state(), reason.None
}

// announceWaiter tells the feed that somebody waits for the probe of that number, or a later one.
func (c *Collection) announceWaiter(number uint64) {
	for current := c.awaitedProbe.Load(); current < number; current = c.awaitedProbe.Load() {
		if c.awaitedProbe.CompareAndSwap(current, number) {
			select {
			case c.newWaiters <- struct{}{}:
			default: // it is told already
			}
			return
		}
	}
}

// publishForecast makes a copy of the feed's state machine available to requests for the newest state.
func (c *Collection) publishForecast(f source.Freshness) { c.forecast.Store(&f) }
