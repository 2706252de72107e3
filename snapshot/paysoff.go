package snapshot

import (
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/pace"
)

// NoFresh says why Fresh could not answer or, unless always is set, that it would take longer than
// forwarding q; None if the proof is there, or if it pays to wait for it. It does not wait, and does
// not count as a use of the collection.
//
// It compares the time until the next proof, which serves all who wait, with the time until the
// upstream's answer. The lists that are being forwarded already delay both. The time to write the
// answer does not count, since the client needs it to read the answer in both cases.
func (c *Collection) NoFresh(q index.Query, after uint64, atMost time.Duration, always bool) reason.Reason {
	v, outlook, now := c.view.Load(), c.outlook.Load(), time.Now()
	switch {
	case v.absence != reason.None:
		return v.absence
	case q.Fields != nil && !v.frame.Selects(q.Fields):
		return reason.NotCanonical
	case outlook.NoBookmarks():
		return reason.NotProven
	case clock.Age(v.heard.Sent, now) >= c.limits.Staleness:
		return reason.Stale
	case v.heard.Number > after:
		return reason.None
	}
	proof := outlook.Proof(now)
	if !always {
		kind, guess := pace.KindOf(v.newest, q)
		list, delay := c.costs.Now(kind, guess, now)
		if proof+delay >= list {
			return reason.MostRecent
		}
	}
	if proof > atMost {
		return reason.NotProven
	}
	return reason.None
}

// forward says that q is sent to the upstream for its newest state.
func (c *Collection) forward(q index.Query) *pace.Forwarded {
	v := c.view.Load()
	if v.absence != reason.None {
		return nil
	}
	kind, _ := pace.KindOf(v.newest, q)
	return c.costs.Begin(kind)
}
