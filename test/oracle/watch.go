package oracle

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/watch"
)

// Event is an event of a watch.
type Event struct {
	Type watch.EventType
	// Object is what must be equal: the object's bytes as they were sent, or a digest.
	Object []byte
	// Key is namespace/name, or the name alone of an object without a namespace. Initial events are ordered by it.
	Key      string
	Revision uint64
	// EndsInitial marks the bookmark after the initial events.
	EndsInitial bool
}

func (e Event) String() string {
	end := ""
	if e.EndsInitial {
		end = " (end of the initial events)"
	}
	return fmt.Sprintf("%s %s at %d%s", e.Type, e.Key, e.Revision, end)
}

// Equal reports whether type, key and object are equal.
func (e Event) Equal(other Event) bool {
	return e.Type == other.Type && e.Key == other.Key && bytes.Equal(e.Object, other.Object)
}

// Beginning is what a watch begins with.
type Beginning string

// The beginnings.
const (
	// FromRevision is a watch at a resourceVersion, such as 11. It has the events after revision 11.
	FromRevision Beginning = "events after a revision"
	// FromState is a watch that first gets the objects that exist, as initial events, and then what happens to them.
	FromState Beginning = "initial events"
	// FromNow is a watch that gets only what happens after it was opened.
	FromNow Beginning = "events from now on"
)

// Watch says what a watch asked for, and what really happened in etcd. [Watch.Judge] compares the events that the watch got.
type Watch struct {
	// What the watch asked for.

	Begins Beginning
	// EndsInitial requires a bookmark after the initial events of a watch FromState.
	EndsInitial bool
	// Bookmarks allows bookmarks.
	Bookmarks bool
	// Revision is the watch's resourceVersion, or 0.
	Revision uint64

	// What it must be given.

	// MinRevision and MaxRevision are the lowest and the highest revision at which a watch FromState or FromNow may begin.
	MinRevision, MaxRevision uint64
	// UpTo is the revision up to which the watch must have every event. If UpTo is mayLackLast, it may lack the last events.
	UpTo uint64

	// What really happened.

	// State has the objects, by key, as they were at the revision From.
	State map[string][]byte
	From  uint64
	// Events are all events after the revision From, in order.
	Events []Event
}

// mayLackLast is the value of [Watch].UpTo with which any number of the last events may be missing.
const mayLackLast = 0

// Judge returns an error if got cannot be the events of a correct watch. While the watch goes on, it must have all events up to
// UpTo. Once it has ended, it may lack the last events.
func (w Watch) Judge(got []Event, ended bool) error {
	if ended {
		w.UpTo = mayLackLast
	}
	changes, lastBookmark, err := w.withoutBookmarks(got)
	if err != nil {
		return err
	}
	w.UpTo = max(w.UpTo, lastBookmark) // a bookmark promises that all events up to its revision came before it
	switch {
	case w.Begins == FromRevision:
		return w.checkChanges(changes, w.Revision)
	case w.Begins == FromNow:
		return w.checkAnyBeginning(func(revision uint64, _ []Event) error { return w.checkChanges(changes, revision) })
	case !w.EndsInitial:
		return w.checkAnyBeginning(func(revision uint64, state []Event) error { return w.checkFromState(changes, revision, state) })
	}
	return w.checkStreamingList(got, changes)
}

// checkStreamingList checks a watch whose initial events end with a bookmark. The initial events must be the state at the
// bookmark's revision. changes are the events of got without bookmarks.
func (w Watch) checkStreamingList(got, changes []Event) error {
	end := slices.IndexFunc(got, func(e Event) bool { return e.EndsInitial })
	if end < 0 {
		if w.UpTo == mayLackLast {
			return nil // it ended among the initial events
		}
		return fmt.Errorf("no bookmark ends the initial events; so far there are %d events", len(got))
	}
	revision, minRevision := got[end].Revision, max(w.MinRevision, w.Revision)
	if revision < minRevision || revision > w.MaxRevision {
		return fmt.Errorf("the state is of revision %d, want %d to %d", revision, minRevision, w.MaxRevision)
	}
	if revision < w.From {
		return fmt.Errorf("the state is of revision %d, but the truth is known from %d on", revision, w.From)
	}
	state := w.stateAt(revision)
	if err := w.checkFromState(changes, revision, state); err != nil {
		return err
	}
	if end == len(state) { // all events before the bookmark are initial events
		return nil
	}
	return fmt.Errorf("there are %d initial events, but %d objects at revision %d", end, len(state), revision)
}

// checkFromState requires that got begins with state, the initial events at a revision, and goes on with what happened after
// that revision.
func (w Watch) checkFromState(got []Event, revision uint64, state []Event) error {
	n := min(len(got), len(state))
	if err := sameEvents(got[:n], state[:n]); err != nil {
		return fmt.Errorf("in the state of revision %d: %w", revision, err)
	}
	if n == len(state) {
		return w.checkChanges(got[n:], revision)
	}
	if w.UpTo != mayLackLast {
		return fmt.Errorf("in the state of revision %d: %d objects, not %d", revision, n, len(state))
	}
	return nil // it ended among the initial events
}

// checkChanges requires that got is what happened after a revision.
func (w Watch) checkChanges(got []Event, revision uint64) error {
	want := w.after(revision)
	n := min(len(got), len(want))
	if err := sameEvents(got[:n], want[:n]); err != nil {
		return fmt.Errorf("after revision %d: %w", revision, err)
	}
	if len(got) > n {
		return fmt.Errorf("after revision %d: %v, which has not happened so far", revision, got[n])
	}
	if len(want) > n && want[n].Revision <= w.UpTo {
		return fmt.Errorf("after revision %d: %v is missing, and all up to %d are due; so far there are %d events", revision, want[n], w.UpTo, n)
	}
	return nil
}

// checkAnyBeginning tries every revision at which the watch may have begun, and requires that check returns no error for one of
// them. For example, if the watch may have begun at 10 to 14, and objects changed at 11 and 12, it tries 10, 11 and 12. check
// gets the initial events of a watch FromState that begins at the revision.
func (w Watch) checkAnyBeginning(check func(revision uint64, state []Event) error) error {
	err := fmt.Errorf("there is none from %d to %d", w.MinRevision, w.MaxRevision)
	objects, revision := maps.Clone(w.State), w.From
	for i := 0; revision <= w.MaxRevision; i++ {
		hasNext := i < len(w.Events)
		// objects is the state until the next event. If the next event came by MinRevision, the watch began after that event.
		if !hasNext || w.Events[i].Revision > max(w.MinRevision, w.Revision) {
			var state []Event
			if w.Begins == FromState {
				state = initial(objects)
			}
			if err = check(revision, state); err == nil {
				return nil
			}
		}
		if !hasNext {
			break
		}
		advance(objects, w.Events[i])
		revision = w.Events[i].Revision
	}
	return fmt.Errorf("the events fit no revision: %w", err)
}

// after returns what happened after a revision.
func (w Watch) after(revision uint64) []Event {
	for i, e := range w.Events {
		if e.Revision > revision {
			return w.Events[i:]
		}
	}
	return nil
}

// stateAt returns the initial events of a revision.
func (w Watch) stateAt(revision uint64) []Event {
	objects := maps.Clone(w.State)
	for _, e := range w.Events {
		if e.Revision <= revision {
			advance(objects, e)
		}
	}
	return initial(objects)
}

// withoutBookmarks checks that bookmarks are at the right places and have the right revisions. It returns the other events, and
// the revision of the last bookmark, or 0.
func (w Watch) withoutBookmarks(got []Event) (changes []Event, lastBookmark uint64, _ error) {
	isInitial := w.EndsInitial // until the bookmark that ends the initial events
	for i, e := range got {
		var err error
		if e.Type == watch.Bookmark {
			err = w.checkBookmark(e, changes, lastBookmark, isInitial)
			lastBookmark = e.Revision
			isInitial = false
		} else {
			changes = append(changes, e)
			switch {
			case isInitial && e.Type != watch.Added:
				err = errors.New("it is among the initial events")
			case e.Revision <= lastBookmark:
				err = fmt.Errorf("it is after a bookmark at %d", lastBookmark)
			}
		}
		if err != nil {
			return nil, 0, fmt.Errorf("event %d: %v: %w", i, e, err)
		}
	}
	return changes, lastBookmark, nil
}

// checkBookmark returns an error if the bookmark e must not come after these changes and after an earlier bookmark at the
// revision lastBookmark. isInitial says that the initial events have not ended before e. They come in the order of keys, so the
// last of them may have any revision up to e's.
func (w Watch) checkBookmark(e Event, changes []Event, lastBookmark uint64, isInitial bool) error {
	minRevision := max(lastBookmark, w.Revision)
	switch {
	case !w.Bookmarks:
		return errors.New("the watch allows no bookmarks")
	case e.EndsInitial && !isInitial:
		return errors.New("the initial events have ended, or need no such end")
	case isInitial && !e.EndsInitial:
		return errors.New("it is among the initial events")
	case e.Revision < minRevision:
		return fmt.Errorf("it is below %d", minRevision)
	case !isInitial && len(changes) > 0 && changes[len(changes)-1].Revision > e.Revision:
		return fmt.Errorf("it is after %v", changes[len(changes)-1])
	}
	return nil
}

// sameEvents returns nil if got equals want, or else an error about the first event that differs. Both have the same length.
func sameEvents(got, want []Event) error {
	for i := range got {
		if !got[i].Equal(want[i]) {
			return mismatch(got, want, i)
		}
	}
	return nil
}

// mismatch describes how the event i of got differs from that of want. A missing event and a doubled one shift all events after
// them, so they are recognized first.
func mismatch(got, want []Event, i int) error {
	describe := func(what string) error { return fmt.Errorf("event %d %s: got %v, want %v", i, what, got[i], want[i]) }
	switch {
	case i+1 < len(want) && got[i].Equal(want[i+1]):
		return describe("is missing")
	case i > 0 && got[i].Equal(got[i-1]):
		return describe("came twice")
	case got[i].Key == want[i].Key && (got[i].Revision == want[i].Revision || got[i].Type == watch.Deleted):
		return errors.Join(describe("differs"), errors.New(Difference(got[i].Object, want[i].Object)))
	}
	return describe("differs")
}

// advance applies an event to the objects of a state, by key.
func advance(objects map[string][]byte, e Event) {
	if e.Type == watch.Deleted {
		delete(objects, e.Key)
		return
	}
	objects[e.Key] = e.Object
}

// initial returns the initial events of a state with these objects, in the order of their keys.
func initial(objects map[string][]byte) []Event {
	all := make([]Event, 0, len(objects))
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		all = append(all, Event{Type: watch.Added, Object: objects[key], Key: key})
	}
	return all
}
