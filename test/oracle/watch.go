package oracle

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/watch"
)

// Event is one of a watch.
type Event struct {
	Type watch.EventType
	// Object is what must be the same: the bytes as they were sent, or a digest of them.
	Object []byte
	// Key is what initial events are ordered by: the object's namespace/name; the name alone, if it is
	// in no namespace.
	Key      string
	Revision uint64
	// EndsInitial is true of the bookmark that follows the initial events.
	EndsInitial bool
}

func (e Event) String() string {
	end := ""
	if e.EndsInitial {
		end = " (end of the initial events)"
	}
	return fmt.Sprintf("%s %s at %d%s", e.Type, e.Key, e.Revision, end)
}

// Equal reports whether a client sees the same.
func (e Event) Equal(other Event) bool {
	return e.Type == other.Type && e.Key == other.Key && bytes.Equal(e.Object, other.Object)
}

// Beginning is what a watch tells first.
type Beginning string

// The beginnings.
const (
	FromRevision Beginning = "what came after a revision"
	FromState    Beginning = "a state"
	FromNow      Beginning = "what comes after now"
)

// Watch is what a watch must tell.
type Watch struct {
	Begins Beginning
	// Ending: a bookmark follows the initial events.
	Ending bool
	// Bookmarks may be sent.
	Bookmarks bool
	// Revision that was asked for, or 0.
	Revision uint64
	// The state, or now, is not older than Least and not newer than Most.
	Least, Most uint64
	// UpTo is the revision up to which all must have been told; 0, if the watch may have ended
	// anywhere.
	UpTo uint64

	// What is true: the objects at From, by key, and what came then.
	From   uint64
	State  map[string][]byte
	Events []Event // above From
}

// Judge returns what is wrong with what was said. What is missing may still come, unless the watch
// has ended, which it may have done anywhere.
func (w Watch) Judge(said []Event, ended bool) error {
	if ended {
		w.UpTo = 0
	}
	told, err := w.withoutBookmarks(said)
	if err != nil {
		return err
	}
	switch w.Begins {
	case FromRevision:
		return w.continues(told, w.Revision)
	case FromNow:
		return w.some(told, func(revision uint64, _ []Event) error { return w.continues(told, revision) })
	}
	end := slices.IndexFunc(said, func(e Event) bool { return e.EndsInitial })
	if !w.Ending {
		return w.some(told, func(revision uint64, state []Event) error { return w.tells(told, revision, state) })
	}
	if end < 0 {
		if w.UpTo == 0 {
			return nil // it ended before
		}
		return fmt.Errorf("no bookmark ends the initial events; so far there are %d events", len(said))
	}
	revision := said[end].Revision
	if revision < max(w.Least, w.Revision) || revision > w.Most {
		return fmt.Errorf("the state is of revision %d, not of %d to %d", revision, max(w.Least, w.Revision), w.Most)
	}
	if revision < w.From {
		return fmt.Errorf("the state is of revision %d, before %d, from which on the truth is known", revision, w.From)
	}
	state := w.stateAt(revision)
	if err := w.tells(told, revision, state); err != nil || end == len(state) {
		return err
	}
	return fmt.Errorf("the state of revision %d has %d objects, not %d", revision, len(state), end)
}

// tells compares with a state and what came after it.
func (w Watch) tells(told []Event, revision uint64, state []Event) error {
	n := min(len(told), len(state))
	if err := sameEvents(told[:n], state[:n]); err != nil {
		return fmt.Errorf("in the state of revision %d: %w", revision, err)
	}
	if n < len(state) {
		if w.UpTo == 0 {
			return nil
		}
		return fmt.Errorf("in the state of revision %d: %d objects, not %d", revision, n, len(state))
	}
	return w.continues(told[n:], revision)
}

// continues compares with what came after a revision.
func (w Watch) continues(told []Event, revision uint64) error {
	want := w.after(revision)
	n := min(len(told), len(want))
	if err := sameEvents(told[:n], want[:n]); err != nil {
		return fmt.Errorf("after revision %d: %w", revision, err)
	}
	if len(told) > n {
		return fmt.Errorf("after revision %d: %v, of which kube-apiserver says nothing so far", revision, told[n])
	}
	if len(want) > n && want[n].Revision <= w.UpTo {
		return fmt.Errorf("after revision %d: no %v, with all up to %d due; so far there are %d events", revision, want[n], w.UpTo, n)
	}
	return nil
}

// some demands that there is a revision of the right age that fits, and the state there.
func (w Watch) some(told []Event, fits func(revision uint64, state []Event) error) error {
	var closest error
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
		if revision > w.Most {
			break
		}
		if i+1 < len(w.Events) && w.Events[i+1].Revision <= max(w.Least, w.Revision) {
			continue // this is true until the next event
		}
		if w.Begins == FromState {
			state = initial(values)
		}
		err := fits(revision, state)
		if err == nil {
			return nil
		}
		closest = err
	}
	if closest == nil {
		closest = fmt.Errorf("no revision from %d to %d", w.Least, w.Most)
	}
	return fmt.Errorf("of %d events, at no revision: %w", len(told), closest)
}

// after returns the events above a revision.
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

// withoutBookmarks checks the bookmarks, but for their bytes, and returns the other events.
func (w *Watch) withoutBookmarks(said []Event) ([]Event, error) {
	var told []Event
	ends, position := 0, uint64(0) // position is what a bookmark has promised
	for i, e := range said {
		initial := w.Begins == FromState && w.Ending && ends == 0
		switch {
		case e.Type == watch.Bookmark && !w.Bookmarks:
			return nil, fmt.Errorf("%v, which nobody wanted", e)
		case e.EndsInitial:
			if ends++; ends > 1 || !w.Ending {
				return nil, fmt.Errorf("event %d: %v, which should not be", i, e)
			}
		case e.Type == watch.Bookmark && initial:
			return nil, fmt.Errorf("event %d: %v, among the initial events", i, e)
		case e.Type != watch.Bookmark:
			if initial && e.Type != watch.Added {
				return nil, fmt.Errorf("event %d: %v, among the initial events", i, e)
			}
			if e.Revision <= position {
				return nil, fmt.Errorf("event %d: %v, after a bookmark at %d", i, e, position)
			}
			told = append(told, e)
			continue
		}
		if e.Revision < max(position, w.Revision) {
			return nil, fmt.Errorf("event %d: %v, below %d", i, e, max(position, w.Revision))
		}
		if last := len(told) - 1; last >= 0 && (!w.Ending || ends == 1 && !e.EndsInitial) && told[last].Revision > e.Revision {
			return nil, fmt.Errorf("event %d: %v, after %v", i, e, told[last])
		}
		position = e.Revision
		// All that is promised must have been told.
		if w.UpTo == 0 || w.UpTo < position {
			w.UpTo = position
		}
	}
	return told, nil
}

// sameEvents says how events differ from the first of those that are wanted.
func sameEvents(got, want []Event) error {
	for i := range got {
		if !got[i].Equal(want[i]) {
			return unequal(got, want, i)
		}
	}
	return nil
}

// unequal says how events differ from one on.
func unequal(got, want []Event, i int) error {
	say := func(what string) error { return fmt.Errorf("event %d %s: %v, not %v", i, what, got[i], want[i]) }
	switch {
	case i+1 < len(want) && got[i].Equal(want[i+1]):
		return say("is missing")
	case i > 0 && got[i].Equal(got[i-1]):
		return say("came twice")
	case got[i].Key == want[i].Key && got[i].Revision == want[i].Revision || got[i].Type == watch.Deleted && got[i].Key == want[i].Key:
		return errors.Join(say("is another"), errors.New(Difference(got[i].Object, want[i].Object)))
	}
	return say("is another")
}

// advance applies an event to a state.
func advance(state map[string][]byte, e Event) {
	if e.Type == watch.Deleted {
		delete(state, e.Key)
		return
	}
	state[e.Key] = e.Object
}

// initial returns the events that tell a state: in the order of keys.
func initial(state map[string][]byte) []Event {
	all := make([]Event, 0, len(state))
	for _, key := range slices.Sorted(maps.Keys(state)) {
		all = append(all, Event{Type: watch.Added, Object: state[key], Key: key})
	}
	return all
}
