package snapshot

import (
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/watch"
)

// CollectionKey names a collection.
type CollectionKey = source.CollectionKey

// Snapshot is the state of a collection at one revision. It is immutable and safe for concurrent use. While a Snapshot is
// referenced, the memory of its objects is not freed.
type Snapshot struct {
	source.ListState
	// CurrentAt is the time at which the state was last known to be current: everything that was written before is in it. It
	// is zero for a state at an exact revision, which need not be the newest.
	CurrentAt time.Time

	// epoch is the collection's epoch in which the state was read. Each load or drop begins another one.
	epoch uint64
	// broadcaster serves the watches that begin at the state; nil if none are served.
	broadcaster *watch.Broadcaster
}

// Page returns the page of a query. Page.Objects uses the memory of buf. See [index.Tree.Page].
func (s Snapshot) Page(q index.Query, buf []*index.Object) index.Page {
	return s.Tree.Page(s.Envelope, q, buf)
}

// Validity decides whether a Snapshot that was read from a collection earlier may still be given to a request (see WhyNot).
type Validity struct {
	// Epoch is the collection's current epoch.
	Epoch uint64
	// Unavailable is the reason why no state is known; None if there is one.
	Unavailable reason.Reason
	// Interval has the revisions whose states are known.
	Interval
	// Staleness is the age at which the newest state is too old ([Limits].Staleness).
	Staleness time.Duration
}

// Validity returns the collection's current Validity.
func (c *Collection) Validity() Validity {
	v := c.view.Load()
	return Validity{Epoch: v.epoch, Unavailable: v.unavailable, Interval: v.Interval, Staleness: c.limits.Staleness}
}

// WhyNot returns the reason why a state that was found earlier must not be given to a request now; None if it may be given.
// Four things prevent it, and the first of them that applies gives the reason:
//
//   - The collection has lost its states.
//   - The state was the newest, and is too old now.
//   - The revision of the state is no longer known.
//   - The epoch of the state has ended.
func (v Validity) WhyNot(found Snapshot, now time.Time) reason.Reason {
	isNewest := !found.CurrentAt.IsZero() // a state at an exact revision has no such time
	unknown := v.whyUnknown(found.Revision)
	switch {
	case v.Unavailable != reason.None:
		return v.Unavailable
	case isNewest && clock.Age(found.CurrentAt, now) >= v.Staleness:
		return reason.Stale
	case unknown != reason.None:
		return unknown
	case v.Epoch != found.epoch:
		return reason.Warming // the state was dropped, and another one was loaded since
	}
	return reason.None
}
