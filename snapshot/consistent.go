package snapshot

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
)

// LastProbe returns the number of the last probe that was sent for any collection. It is never 0. A probe asks the upstream for
// its current revision. A load counts as a probe, too.
func (c *Collections) LastProbe() uint64 { return c.shared.probes.Last() }

// Consistent returns the newest state once a probe has proven that the state has everything that was written before the request
// came. afterProbe is what [Collections.LastProbe] returned when the request came. Every later probe can prove the state.
// Consistent waits up to maxWait for the proof, and then returns NotProven. For example:
//
//  1. A list comes. The last probe was number 7, so afterProbe is 7.
//  2. The feed sends probe 8. The upstream answers with revision 30.
//  3. The feed's stream, or a progress watch (a short watch for its bookmark), sends everything up to 30.
//  4. Probe 8 has proven the state now, so Consistent returns the state.
//
// A load proves the loaded state at once. If afterProbe is 0, the time of the request is unknown, and nothing proves the state.
func (c *Collection) Consistent(ctx context.Context, afterProbe uint64, maxWait time.Duration) (Snapshot, reason.Reason) {
	c.Touch()
	read := func(v *View) (Snapshot, reason.Reason) { return v.consistent(afterProbe) }
	if snap, why := read(c.view.Load()); why != reason.NotProven {
		return snap, why
	}
	c.raiseAwaitedProbe(afterProbe + 1)
	if !c.view.Load().streaming {
		c.requestProbe() // shortens the feed's pause before it opens a stream again
	}
	return c.await(ctx, maxWait, reason.NotProven, whenProven, read)
}

// consistent is [Collection.Consistent] without a wait.
func (v *View) consistent(afterProbe uint64) (Snapshot, reason.Reason) {
	switch {
	case v.unavailable != reason.None:
		return Snapshot{}, v.unavailable
	case !v.isProvenAfter(afterProbe):
		return Snapshot{}, reason.NotProven
	}
	return v.snapshot(), reason.None
}

// isProvenAfter reports whether a probe with a number above afterProbe has proven the newest state. It is false for 0.
func (v *View) isProvenAfter(afterProbe uint64) bool {
	return afterProbe != 0 && v.provenBy.Number > afterProbe
}

// raiseAwaitedProbe records that a request waits for the probe with this number or a later one, and wakes the feed. It does
// nothing if another request waits for that probe or a later one already.
func (c *Collection) raiseAwaitedProbe(number uint64) {
	for current := c.awaitedProbe.Load(); current < number; current = c.awaitedProbe.Load() {
		if c.awaitedProbe.CompareAndSwap(current, number) {
			notify(c.newWaiters)
			return
		}
	}
}

// WhyNotConsistent returns the reason why [Collection.Consistent] is unlikely to find a state for the query q within maxWait;
// None if it may find one. WhyNotConsistent itself does not wait, and does not count as a use of the collection.
func (c *Collection) WhyNotConsistent(q index.Query, afterProbe uint64, maxWait time.Duration) reason.Reason {
	v := c.view.Load()
	now := time.Now()
	if why := c.whyUnlikely(v, now); why != reason.None {
		return why
	}
	untilProof := c.freshness.Load().EarliestProof().Sub(now) // negative if a proof can come at once
	switch {
	case q.Fields != nil && !v.envelope.CanSelect(q.Fields):
		return reason.NotCanonical
	case !v.isProvenAfter(afterProbe) && untilProof > maxWait:
		return reason.NotProven
	}
	return reason.None
}

// whyUnlikely returns the reason why Consistent is unlikely to find a state in v, whatever the query and the wait; None if it
// may find one.
func (c *Collection) whyUnlikely(v *View, now time.Time) reason.Reason {
	switch {
	case v.unavailable != reason.None:
		return v.unavailable
	case c.freshness.Load().BookmarksMissing(): // nothing can prove that the state is the newest
		return reason.NotProven
	case clock.Age(v.provenBy.Sent, now) >= c.limits.Staleness: // probes have not proven the state lately
		return reason.Stale
	}
	return reason.None
}

// publishFreshness gives requests a copy of the feed's Freshness. It shows them when a proof can come (see WhyNotConsistent).
func (c *Collection) publishFreshness(f source.Freshness) { c.freshness.Store(&f) }
