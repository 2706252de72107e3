package snapshot

import (
	"fmt"
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// maxChanges is how many changes are remembered.
const maxChanges = 20

// Change says that something changed on which what is kept depends, and so was dropped: for people.
type Change struct {
	At time.Time
	// Of is the resource, the group and version, or the resource and representation that it was about;
	// "all" for all of them.
	Of string
	// Cause is the one with which the losses are counted.
	Cause reason.Reason
}

// changes are the last ones, the latest first, each once.
type changes []Change

// with returns c with an invalidation of now.
func (c changes) with(i Invalidation, now time.Time) changes {
	if i.Ground == Sight || i.Until.over { // that nothing changed
		return c
	}
	is := Change{At: now, Of: i.Extent.String(), Cause: consequences[i.Ground].loss}
	others := slices.DeleteFunc(slices.Clone(c), func(was Change) bool { return was.Of == is.Of && was.Cause == is.Cause })
	return append(changes{is}, others[:min(len(others), maxChanges-1)]...)
}

// String names what is meant, for people.
func (e Extent) String() string {
	switch of := e.of.(type) {
	case nil:
		return "all"
	case Resource:
		return fmt.Sprintf("%s/%s", of.GroupResource(), of.Representation)
	default:
		return fmt.Sprint(of)
	}
}

// Changes returns the last changes, the latest first.
func (c *Collections) Changes() []Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}
