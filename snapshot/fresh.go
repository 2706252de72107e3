package snapshot

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/freshness"
)

// Asked is the number of the last inquiry that was sent to the upstream: a load, or a question for its
// current revision.
func (c *Collection) Asked() uint64 { return c.inquiries.Load() }

// Fresh returns the newest state once it is proven that it holds everything that was written before
// Asked returned asked: since then, the state was loaded; or the feed has asked the upstream for its
// current revision, and its own stream, or a watch beside it, has sent everything up to that revision.
// Fresh waits for the proof, at most for atMost.
func (c *Collection) Fresh(ctx context.Context, asked uint64, atMost time.Duration) (Snapshot, reason.Reason) {
	c.Touch()
	if snap, why := c.view.Load().fresh(asked); why != reason.NotProven {
		return snap, why
	}
	c.wish(asked + 1)
	snap, why, _ := c.await(ctx, atMost, reason.NotProven, (*View).outdated, func(v *View) (Snapshot, reason.Reason) {
		return v.fresh(asked)
	})
	return snap, why
}

// fresh returns the newest state if it holds everything that was written before an inquiry with a
// number higher than asked was sent, and is not in doubt.
func (v *View) fresh(asked uint64) (Snapshot, reason.Reason) {
	switch {
	case v.absence != reason.None:
		return Snapshot{}, v.absence
	case v.heard.Number <= asked, v.doubted:
		return Snapshot{}, reason.NotProven
	}
	return v.state(), reason.None
}

// wish tells the feed that somebody waits for an inquiry of that number, or a later one.
func (c *Collection) wish(number uint64) {
	for was := c.wished.Load(); was < number; was = c.wished.Load() {
		if c.wished.CompareAndSwap(was, number) {
			select {
			case c.wishes <- struct{}{}:
			default: // it is told already
			}
			return
		}
	}
}

// publish makes a copy of the feed's state machine available to requests for the newest state.
func (c *Collection) publish(f freshness.Machine) { c.outlook.Store(&f) }
