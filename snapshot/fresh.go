package snapshot

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/pace"
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
// number higher than after was sent.
func (v *View) fresh(after uint64) (Snapshot, reason.Reason) {
	switch {
	case v.absence != reason.None:
		return Snapshot{}, v.absence
	case v.heard.Number <= after:
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

// NoFresh says why Fresh could not answer or, unless always is set, that it would take longer than
// forwarding q; None if it pays to wait. It does not wait, and does not count as a use of the
// collection.
//
// It compares the time until the next proof, which serves all who wait, with the time until the
// upstream's answer, considering how many it has to give already. The time to write the answer does
// not count, since the client needs it to read the answer in both cases.
func (c *Collection) NoFresh(q index.Query, atMost time.Duration, always bool) reason.Reason {
	v, now := c.view.Load(), time.Now()
	switch {
	case v.absence != reason.None:
		return v.absence
	case clock.Age(v.heard.Asked, now) >= c.limits.Staleness:
		return reason.Stale
	}
	proof := c.outlook.Load().Proof(now)
	if !always {
		if kind, bytes := pace.KindOf(v.newest, q); proof >= c.costs.Now(kind, bytes, now) {
			return reason.FasterForwarded
		}
	}
	if proof > atMost {
		return reason.NotProven
	}
	return reason.None
}

// publish makes a copy of the feed's state machine available to requests for the newest state.
func (c *Collection) publish(f freshness.Machine) { c.outlook.Store(&f) }

// forward says that q is sent to the upstream for its newest state.
func (c *Collection) forward(q index.Query) *pace.Forwarded {
	v := c.view.Load()
	if v.absence != reason.None {
		return nil
	}
	kind, _ := pace.KindOf(v.newest, q)
	return c.costs.Begin(kind)
}
