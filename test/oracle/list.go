package oracle

import (
	"fmt"
	"time"
)

// Tolerance is how much further behind than the bound a state may be. A correct listproxy does not need it. It
// overestimates the age of its state, which it counts from before it asked the API server for the revision until it
// answers. A ledger underestimates how far a state is behind: it notes a write only after the API server has confirmed
// it, and who judges counts until the request is sent.
const Tolerance = time.Second

// List is what a list must be.
type List struct {
	// Revision is the one that was asked for, or 0. The list is of exactly that one, or not older.
	Revision uint64
	Exactly  bool
	// Holds is the time up to which everything written must be in the list. The zero time: nothing need be.
	Holds time.Time
}

// Within returns when a write must have been confirmed to be in the newest state that a server gives, if that may be as
// old as a bound.
func Within(bound time.Duration, asked time.Time) time.Time { return asked.Add(-bound - Tolerance) }

// Judge returns what is wrong with an answer of a revision. newest returns the highest revision written at a time.
func (l List) Judge(revision uint64, newest func(time.Time) uint64) error {
	if revision < l.Revision || l.Exactly && revision != l.Revision {
		return fmt.Errorf("it is of revision %d, and %d was asked for (exactly that: %t)", revision, l.Revision, l.Exactly)
	}
	if l.Holds.IsZero() {
		return nil
	}
	if written := newest(l.Holds); revision < written {
		return fmt.Errorf("it is too old: of revision %d, and must hold what was written by %s, up to %d",
			revision, l.Holds.Format(time.StampMilli), written)
	}
	return nil
}
