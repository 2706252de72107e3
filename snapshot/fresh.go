package snapshot

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
)

// LastProbe returns the number, never 0, of the last probe that was sent for any collection. A load counts as a probe.
func (c *Collections) LastProbe() uint64 { return c.shared.probes.Last() }

// Consistent returns the newest state once a probe with a number above afterProbe has proven it, so the state has everything
// that was written before that probe was sent. Consistent waits up to maxWait for the proof, and then returns NotProven. If
// afterProbe is 0, the time of the request is unknown, and nothing proves the state.
//
// For example, probe 7 was the last one when the request came, so afterProbe is 7. Probe 8 is sent, and the upstream answers
// with revision 30. Once the feed's stream or a progress watch has sent everything up to 30, the state is proven by probe 8,
// and is returned. (A load is a probe, too. It proves the loaded state at once.)
func (c *Collection) Consistent(ctx context.Context, afterProbe uint64, maxWait time.Duration) (Snapshot, reason.Reason) {
	c.Touch()
	read := func(v *View) (Snapshot, reason.Reason) { return v.consistent(afterProbe) }
	if snap, why := read(c.view.Load()); why != reason.NotProven {
		return snap, why
	}
	c.noteAwaited(afterProbe + 1)
	if !c.view.Load().streaming {
		c.requestProbe() // shortens the feed's pause before it opens a stream again
	}
	return c.await(ctx, maxWait, reason.NotProven, whenFreshened, read)
}

// consistent is [Collection.Consistent] without a wait.
func (v *View) consistent(afterProbe uint64) (Snapshot, reason.Reason) {
	switch {
	case v.unavailable != reason.None:
		return Snapshot{}, v.unavailable
	case !v.provenAfter(afterProbe):
		return Snapshot{}, reason.NotProven
	}
	return v.snapshot(), reason.None
}

// provenAfter reports whether a probe with a number above afterProbe has proven the newest state. It is false for 0.
func (v *View) provenAfter(afterProbe uint64) bool {
	return afterProbe != 0 && v.provenBy.Number > afterProbe
}

// noteAwaited records that a request waits for the probe with this number or a later one, and wakes the feed. It does nothing if
// another request waits for that probe or a later one already. noteAwaited itself does not wait.
func (c *Collection) noteAwaited(number uint64) {
	for current := c.awaitedProbe.Load(); current < number; current = c.awaitedProbe.Load() {
		if c.awaitedProbe.CompareAndSwap(current, number) {
			notify(c.newWaiters)
			return
		}
	}
}

// WhyNotConsistent returns the reason why [Collection.Consistent] is unlikely to find a state for the query q within maxWait; None
// if it may find one. WhyNotConsistent itself does not wait, and does not count as a use of the collection.
func (c *Collection) WhyNotConsistent(q index.Query, afterProbe uint64, maxWait time.Duration) reason.Reason {
	v := c.view.Load()
	now := time.Now()
	if why := c.whyUnlikely(v, now); why != reason.None {
		return why
	}
	switch {
	case q.Fields != nil && !v.envelope.CanSelect(q.Fields):
		return reason.NotCanonical
	case !v.provenAfter(afterProbe) && c.freshness.Load().EarliestProof().Sub(now) > maxWait:
		return reason.NotProven
	}
	return reason.None
}

// whyUnlikely returns the reason why Consistent is unlikely to find a state in v, whatever the query and the wait; None if it may
// find one.
func (c *Collection) whyUnlikely(v *View, now time.Time) reason.Reason {
	switch {
	case v.unavailable != reason.None:
		return v.unavailable
	case c.freshness.Load().BookmarksMissing(): // nothing can prove that the state is the newest
		return reason.NotProven
	case clock.Age(v.provenBy.Sent, now) >= c.limits.Staleness:
		return reason.Stale
	}
	return reason.None
}

// publishFreshness publishes a copy of the feed's Freshness.
func (c *Collection) publishFreshness(f source.Freshness) { c.freshness.Store(&f) }
