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
// Fresh was called: the feed has asked the upstream after that how far it is, and its own stream,
// or a watch beside it, has told everything up to there. It waits for the proof, at most for a
// time.
func (c *Collection) Fresh(ctx context.Context, atMost time.Duration) (Snapshot, reason.Reason) {
	c.Touch()
	after := c.inquiries.Load()
	c.wish(after + 1)
	snap, why, _ := c.await(ctx, atMost, reason.NotProven, (*View).outdated, func(v *View) (Snapshot, reason.Reason) {
		return v.fresh(after)
	})
	return snap, why
}

// fresh returns the newest state if it holds everything that had been written before the inquiry
// after that one was sent.
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

// NoFresh says why Fresh would come to nothing, or would take longer than to forward q, if that
// counts; None if it is worth waiting for. It does not wait, and is no use of the collection.
//
// What is compared is the time until the answer is there, without the time to write it, which the
// client takes to read it either way: the next proof, which serves all who wait for one, and the
// upstream's answer beside those that it has to give already.
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

// publish lets those who ask for the newest state know what the feed expects.
func (c *Collection) publish(f freshness.Machine) { c.outlook.Store(&f) }

// forward takes in that q is sent to the upstream for its newest state. What it returns is to be
// called when that is over, with how long the upstream took to answer; 0 if it did not.
func (c *Collection) forward(q index.Query) (over func(took time.Duration)) {
	v := c.view.Load()
	if v.absence != reason.None {
		return func(time.Duration) {}
	}
	kind, _ := pace.KindOf(v.newest, q)
	return c.costs.Begin(kind)
}
