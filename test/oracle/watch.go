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
	FromRevision Beginning = "events after a revision"
	FromState    Beginning = "initial events"
	FromNow      Beginning = "events from now on"
)

// Watch is what is required of the events of a watch, and the truth with which they are compared.
type Watch struct {
	Begins Beginning
	// EndsInitial requires a bookmark after the initial events.
	EndsInitial bool
	// Bookmarks allows bookmarks.
	Bookmarks bool
	// Revision is the watch's resourceVersion, or 0.
	Revision uint64
	// MinRevision and MaxRevision bound the revision of the initial state, or that after which a watch FromNow begins.
	MinRevision, MaxRevision uint64
	// UpTo is the revision up to which the watch must have every event. With 0 it may lack the last events.
	UpTo uint64

	// The truth: State has the objects at the revision From by key, and Events what happened after From.
	From   uint64
	State  map[string][]byte
	Events []Event
}

// Judge returns an error if the watch must not have these events. A watch that has ended may lack the last events; a watch that
// goes on must have all events up to UpTo.
func (w Watch) Judge(got []Event, ended bool) error {
	if ended {
		w.UpTo = 0
	}
	changes, promised, err := w.withoutBookmarks(got)
	if err != nil {
		return err
	}
	w.UpTo = max(w.UpTo, promised)
	switch w.Begins {
	case FromRevision:
		return w.continues(changes, w.Revision)
	case FromNow:
		return w.fitsAnywhere(changes, func(revision uint64, _ []Event) error { return w.continues(changes, revision) })
	}
	if !w.EndsInitial {
		return w.fitsAnywhere(changes, func(revision uint64, state []Event) error { return w.beginsWith(changes, revision, state) })
	}
	end := slices.IndexFunc(got, func(e Event) bool { return e.EndsInitial })
	if end < 0 {
		if w.UpTo == 0 {
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
	if err := w.beginsWith(changes, revision, state); err != nil || end == len(state) {
		return err
	}
	return fmt.Errorf("there are %d initial events, but %d objects at revision %d", end, len(state), revision)
}

// beginsWith requires that the changes got are the state at a revision, and what happened after that revision.
func (w Watch) beginsWith(got []Event, revision uint64, state []Event) error {
	n := min(len(got), len(state))
	if err := sameEvents(got[:n], state[:n]); err != nil {
		return fmt.Errorf("in the state of revision %d: %w", revision, err)
	}
	if n < len(state) {
		if w.UpTo == 0 {
			return nil
		}
		return fmt.Errorf("in the state of revision %d: %d objects, not %d", revision, n, len(state))
	}
	return w.continues(got[n:], revision)
}

// continues requires that the changes got are what happened after a revision.
func (w Watch) continues(got []Event, revision uint64) error {
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

// fitsAnywhere requires that fits returns no error for some revision from MinRevision to MaxRevision. With FromState, fits gets
// the initial events of the state at that revision, too.
func (w Watch) fitsAnywhere(got []Event, fits func(revision uint64, state []Event) error) error {
	var last error
	state := w.stateAt(w.From)
	values := map[string][]byte{}
	for _, e := range state {
		values[e.Key] = e.Object
	}
	for i := -1; i < len(w.Events); i++ {
		revision := w.From
		if i >= 0 {
			revision = w.Events[i].Revision
			advance(values, w.Events[i])
		}
		if revision > w.MaxRevision {
			break
		}
		if i+1 < len(w.Events) && w.Events[i+1].Revision <= max(w.MinRevision, w.Revision) {
			continue // at MinRevision the next event has already changed this state
		}
		if w.Begins == FromState {
			state = initial(values)
		}
		err := fits(revision, state)
		if err == nil {
			return nil
		}
		last = err
	}
	if last == nil {
		last = fmt.Errorf("there is none from %d to %d", w.MinRevision, w.MaxRevision)
	}
	return fmt.Errorf("%d events fit no revision: %w", len(got), last)
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
	values := maps.Clone(w.State)
	for _, e := range w.Events {
		if e.Revision <= revision {
			advance(values, e)
		}
	}
	return initial(values)
}

// withoutBookmarks checks the bookmarks, except for their bytes. It returns the other events, and in promised the revision of
// the last bookmark: the watch must have every event up to there.
func (w Watch) withoutBookmarks(got []Event) (changes []Event, promised uint64, _ error) {
	ends := 0 // bookmarks with EndsInitial
	for i, e := range got {
		isInitial := w.Begins == FromState && w.EndsInitial && ends == 0
		switch {
		case e.Type == watch.Bookmark && !w.Bookmarks:
			return nil, 0, fmt.Errorf("event %d: %v, but the watch allows none", i, e)
		case e.EndsInitial:
			ends++
			if ends > 1 || !w.EndsInitial {
				return nil, 0, fmt.Errorf("event %d: %v, which should not be there", i, e)
			}
		case e.Type == watch.Bookmark && isInitial:
			return nil, 0, fmt.Errorf("event %d: %v, among the initial events", i, e)
		case e.Type != watch.Bookmark:
			if isInitial && e.Type != watch.Added {
				return nil, 0, fmt.Errorf("event %d: %v, among the initial events", i, e)
			}
			if e.Revision <= promised {
				return nil, 0, fmt.Errorf("event %d: %v, after a bookmark at %d", i, e, promised)
			}
			changes = append(changes, e)
			continue
		}
		if minRevision := max(promised, w.Revision); e.Revision < minRevision {
			return nil, 0, fmt.Errorf("event %d: %v, below %d", i, e, minRevision)
		}
		// Initial events may have any revision up to that of the bookmark behind them.
		isOrdered := !w.EndsInitial || ends == 1 && !e.EndsInitial
		if last := len(changes) - 1; isOrdered && last >= 0 && changes[last].Revision > e.Revision {
			return nil, 0, fmt.Errorf("event %d: %v, after %v", i, e, changes[last])
		}
		promised = e.Revision
	}
	return changes, promised, nil
}

// sameEvents returns how the first wrong event of got differs from want. Both must have the same length.
func sameEvents(got, want []Event) error {
	for i := range got {
		if !got[i].Equal(want[i]) {
			return unequal(got, want, i)
		}
	}
	return nil
}

// unequal returns how the event i of got differs from want.
func unequal(got, want []Event, i int) error {
	say := func(what string) error { return fmt.Errorf("event %d %s: got %v, want %v", i, what, got[i], want[i]) }
	switch {
	case i+1 < len(want) && got[i].Equal(want[i+1]):
		return say("is missing")
	case i > 0 && got[i].Equal(got[i-1]):
		return say("came twice")
	case got[i].Key == want[i].Key && (got[i].Revision == want[i].Revision || got[i].Type == watch.Deleted):
		return errors.Join(say("differs"), errors.New(Difference(got[i].Object, want[i].Object)))
	}
	return say("differs")
}

// advance applies an event to a state.
func advance(state map[string][]byte, e Event) {
	if e.Type == watch.Deleted {
		delete(state, e.Key)
		return
	}
	state[e.Key] = e.Object
}

// initial returns the initial events of a state, in the order of keys.
func initial(state map[string][]byte) []Event {
	all := make([]Event, 0, len(state))
	for _, key := range slices.Sorted(maps.Keys(state)) {
		all = append(all, Event{Type: watch.Added, Object: state[key], Key: key})
	}
	return all
}
