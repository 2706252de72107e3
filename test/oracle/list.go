package oracle

import (
	"fmt"
	"time"
)

// Tolerance is added to the bound on a state's age. A correct listproxy does not need it, since it counts a longer age than
// tests do. listproxy counts from before it asks for the revision until its answer. Tests count from the confirmation of a
// write until the client's request.
const Tolerance = time.Second

// List says which revisions a list may have.
type List struct {
	// Revision is the lowest revision that the list may have, or 0. With Exactly, the list must have this revision.
	Revision uint64
	Exactly  bool
	// ConfirmedBy is a time. The list must have every write that the API server confirmed to its writer by that time. The zero
	// time requires none.
	ConfirmedBy time.Time
}

// Within returns the List.ConfirmedBy for a request that was sent at the time asked, if its answer may be as old as bound. With
// a bound of 6 s, the answer to a request at 12:00:10 must have every write that was confirmed by 12:00:03 (Tolerance is 1 s).
func Within(bound time.Duration, asked time.Time) time.Time { return asked.Add(-bound - Tolerance) }

// Judge returns an error if a correct list cannot have this revision. newest returns the highest revision that was confirmed by
// a time.
func (l List) Judge(revision uint64, newest func(time.Time) uint64) error {
	if revision < l.Revision || l.Exactly && revision != l.Revision {
		return fmt.Errorf("the list is of revision %d, want %d (exactly: %t)", revision, l.Revision, l.Exactly)
	}
	if l.ConfirmedBy.IsZero() {
		return nil
	}
	if written := newest(l.ConfirmedBy); revision < written {
		return fmt.Errorf("the list is too old: it is of revision %d, but must have what was confirmed by %s, up to %d",
			revision, l.ConfirmedBy.Format(time.StampMilli), written)
	}
	return nil
}
