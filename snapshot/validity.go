package snapshot

import (
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// Validity is a copy of what decides whether a state that was read from a collection earlier may still be given to a
// request.
type Validity struct {
	// Epoch is the collection's epoch. A new epoch begins when the state is dropped.
	Epoch uint64
	// Unavailable is the reason why there is no newest state; None if there is one. Without it no other state is given either.
	Unavailable reason.Reason
	// Interval has the revisions whose states are known.
	Interval
	// Staleness is [Limits].Staleness.
	Staleness time.Duration
}

// Validity returns what the collection's answers depend on now.
func (c *Collection) Validity() Validity {
	v := c.view.Load()
	return Validity{Epoch: v.epoch, Unavailable: v.unavailable, Interval: v.Interval, Staleness: c.limits.Staleness}
}

// WhyNot returns the reason why a state that was read before must not be given to a request now; None if it may be. The
// collection must have a newest state. A state that was read as the newest must not be too old. The revision of any state
// must still be known, and its epoch must not have ended.
func (v Validity) WhyNot(found Snapshot, now time.Time) reason.Reason {
	isNewest := !found.CurrentAt.IsZero() // a state at an exact revision has no such time
	switch {
	case v.Unavailable != reason.None:
		return v.Unavailable
	case isNewest && clock.Age(found.CurrentAt, now) >= v.Staleness:
		return reason.Stale
	}
	if why := v.whyUnknown(found.Revision); why != reason.None {
		return why
	}
	if v.Epoch != found.epoch {
		return reason.Warming // the state was dropped, and another one was loaded since
	}
	return reason.None
}
