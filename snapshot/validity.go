package snapshot

import (
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// Validity has what decides, at one moment, whether a state that was read from the collection before may still be given
// to a request.
type Validity struct {
	// Epoch is the collection's epoch. A new epoch begins when the state is dropped.
	Epoch uint64
	// Unavailable is the reason why there is no newest state; None if there is one.
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

// WhyNot returns the reason why a state that was read before must not be given to a request now; None if it may be. A
// newest state must still be available and not too old. The revision of any state must still be known, and its epoch
// must not have ended.
func (validity Validity) WhyNot(found Snapshot, now time.Time) reason.Reason {
	isNewest := !found.CurrentAt.IsZero()
	switch {
	case isNewest && validity.Unavailable != reason.None:
		return validity.Unavailable
	case isNewest && clock.Age(found.CurrentAt, now) >= validity.Staleness:
		return reason.Stale
	}
	if unavailable := validity.whyUnknown(found.Revision, validity.Unavailable); unavailable != reason.None {
		return unavailable
	}
	if validity.Epoch != found.epoch {
		return reason.Warming // the state was dropped, and another one was loaded since
	}
	return reason.None
}
