package snapshot

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/freshness"
)

// LastProbe is the number of the last probe that was sent for any collection: a load, or a question
// for the upstream's current revision. It is never 0.
func (c *Collections) LastProbe() uint64 { return c.probes.Last() }

// Fresh returns the newest state once it is proven. The proof is a probe with a number higher than
// after: the state then holds everything that was written before that probe was sent. The probe has
// either loaded the state; or it has asked for the upstream's current revision, and the feed's own
// stream, or a watch beside it, has sent everything up to that revision. Fresh waits for the proof,
// at most for atMost.
func (c *Collection) Fresh(ctx context.Context, after uint64, atMost time.Duration) (Snapshot, reason.Reason) {
	c.Touch()
	if snap, why := c.view.Load().fresh(after); why != reason.NotProven {
		return snap, why
	}
	c.announceWaiter(after + 1)
	if !c.view.Load().streams {
		c.requestProbe() // the upstream may be there again
	}
	snap, why, _ := c.await(ctx, atMost, reason.NotProven, (*View).outdated, func(v *View) (Snapshot, reason.Reason) {
		return v.fresh(after)
	})
	return snap, why
}

// fresh returns the newest state if it holds everything that was written before a probe with a
// number higher than after was sent. It is never proven for 0: nobody knows when such a request came.
func (v *View) fresh(after uint64) (Snapshot, reason.Reason) {
	switch {
	case v.absence != reason.None:
		return Snapshot{}, v.absence
	case after == 0, v.heard.Number <= after:
		return Snapshot{}, reason.NotProven
	}
	return v.state(), reason.None
}

// announceWaiter tells the feed that somebody waits for the probe of that number, or a later one.
func (c *Collection) announceWaiter(number uint64) {
	for was := c.awaited.Load(); was < number; was = c.awaited.Load() {
		if c.awaited.CompareAndSwap(was, number) {
			select {
			case c.newWaiters <- struct{}{}:
			default: // it is told already
			}
			return
		}
	}
}

// publish makes a copy of the feed's state machine available to requests for the newest state.
func (c *Collection) publish(f freshness.Machine) { c.outlook.Store(&f) }
