package snapshot

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/freshness"
)

// Fresh returns the newest state once it is proven that it holds everything that was written before
// Fresh was called: after the call, the feed has asked the upstream for its current revision, and
// its own stream, or a watch beside it, has sent everything up to that revision. Fresh waits for
// the proof, at most for atMost.
func (c *Collection) Fresh(ctx context.Context, atMost time.Duration) (Snapshot, reason.Reason) {
	c.Touch()
	after := c.inquiries.Load()
	c.wish(after + 1)
	snap, why, _ := c.await(ctx, atMost, reason.NotProven, (*View).outdated, func(v *View) (Snapshot, reason.Reason) {
		return v.fresh(after)
	})
	return snap, why
}

// fresh returns the newest state if it holds everything that was written before an inquiry with a
// number higher than after was sent, and is not in doubt.
func (v *View) fresh(after uint64) (Snapshot, reason.Reason) {
	switch {
	case v.absence != reason.None:
		return Snapshot{}, v.absence
	case v.heard.Number <= after, v.doubted:
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
