package watches

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/listproxy/listproxy/test/oracle"
)

// demand is what a watch must tell.
type demand struct {
	begins beginning
	// ending: a bookmark follows the initial events.
	ending bool
	// bookmarks may be sent.
	bookmarks bool
	// revision that was asked for, or 0.
	revision uint64
	// The state, or now, is not older than least and not newer than most.
	least, most uint64
	// upTo is the revision up to which all must have been told; 0, if the watch may have ended
	// anywhere.
	upTo uint64

	from   uint64
	state  map[string][]byte
	events []event // above from
}

// judge returns what is wrong with what was said. What is missing may still come.
func (d demand) judge(said []event) error {
	told, err := d.withoutBookmarks(said)
	if err != nil {
		return err
	}
	switch d.begins {
	case fromRevision:
		return d.continues(told, d.revision)
	case fromNow:
		return d.some(told, func(revision uint64, _ []event) error { return d.continues(told, revision) })
	}
	end := slices.IndexFunc(said, func(e event) bool { return e.end })
	if !d.ending {
		return d.some(told, func(revision uint64, state []event) error { return d.tells(told, revision, state) })
	}
	if end < 0 {
		if d.upTo == 0 {
			return nil // it ended before
		}
		return fmt.Errorf("no bookmark ends the initial events; so far there are %d events", len(said))
	}
	revision := said[end].revision
	if revision < max(d.least, d.revision) || revision > d.most {
		return fmt.Errorf("the state is of revision %d, not of %d to %d", revision, max(d.least, d.revision), d.most)
	}
	if revision < d.from {
		return fmt.Errorf("the state is of revision %d, before %d, from which on the truth is known", revision, d.from)
	}
	state := d.stateAt(revision)
	if end != len(state) {
		if err := sameEvents(told[:min(end, len(state))], state[:min(end, len(state))]); err != nil {
			return fmt.Errorf("in the state of revision %d: %w", revision, err)
		}
		return fmt.Errorf("the state of revision %d has %d objects, not %d", revision, len(state), end)
	}
	return d.tells(told, revision, state)
}

// tells compares with a state and what came after it.
func (d demand) tells(told []event, revision uint64, state []event) error {
	n := min(len(told), len(state))
	if err := sameEvents(told[:n], state[:n]); err != nil {
		return fmt.Errorf("in the state of revision %d: %w", revision, err)
	}
	if n < len(state) {
		if d.upTo == 0 {
			return nil
		}
		return fmt.Errorf("in the state of revision %d: %d objects, not %d", revision, n, len(state))
	}
	return d.continues(told[n:], revision)
}

// continues compares with what came after a revision.
func (d demand) continues(told []event, revision uint64) error {
	want := d.after(revision)
	n := min(len(told), len(want))
	if err := sameEvents(told[:n], want[:n]); err != nil {
		return fmt.Errorf("after revision %d: %w", revision, err)
	}
	if len(told) > n {
		return fmt.Errorf("after revision %d: %v, of which kube-apiserver says nothing so far", revision, told[n])
	}
	if len(want) > n && want[n].revision <= d.upTo {
		return fmt.Errorf("after revision %d: no %v, with all up to %d due; so far there are %d events", revision, want[n], d.upTo, n)
	}
	return nil
}

// some demands that there is a revision of the right age that fits, and the state there.
func (d demand) some(told []event, fits func(revision uint64, state []event) error) error {
	var closest error
	state := d.stateAt(d.from)
	values := map[string][]byte{}
	for _, e := range state {
		values[e.key] = e.object
	}
	for i := -1; i < len(d.events); i++ {
		revision := d.from
		if i >= 0 {
			revision = d.events[i].revision
			advance(values, d.events[i])
		}
		if revision > d.most {
			break
		}
		if i+1 < len(d.events) && d.events[i+1].revision <= max(d.least, d.revision) {
			continue // this is true until the next event
		}
		if d.begins == fromState {
			state = initial(values)
		}
		err := fits(revision, state)
		if err == nil {
			return nil
		}
		closest = err
	}
	if closest == nil {
		closest = fmt.Errorf("no revision from %d to %d", d.least, d.most)
	}
	return fmt.Errorf("of %d events, at no revision: %w", len(told), closest)
}

// after returns the events above a revision.
func (d demand) after(revision uint64) []event {
	for i, e := range d.events {
		if e.revision > revision {
			return d.events[i:]
		}
	}
	return nil
}

// stateAt returns the initial events of a revision.
func (d demand) stateAt(revision uint64) []event {
	values := maps.Clone(d.state)
	for _, e := range d.events {
		if e.revision <= revision {
			advance(values, e)
		}
	}
	return initial(values)
}

// withoutBookmarks checks the bookmarks, but for their bytes, and returns the other events.
func (d *demand) withoutBookmarks(said []event) ([]event, error) {
	var told []event
	ends, position := 0, uint64(0) // position is what a bookmark has promised
	for i, e := range said {
		initial := d.begins == fromState && d.ending && ends == 0
		switch {
		case e.kind == bookmark && !d.bookmarks:
			return nil, fmt.Errorf("%v, which nobody wanted", e)
		case e.end:
			if ends++; ends > 1 || !d.ending {
				return nil, fmt.Errorf("event %d: %v, which should not be", i, e)
			}
		case e.kind == bookmark && initial:
			return nil, fmt.Errorf("event %d: %v, among the initial events", i, e)
		case e.kind != bookmark:
			if initial && e.kind != added {
				return nil, fmt.Errorf("event %d: %v, among the initial events", i, e)
			}
			if e.revision <= position {
				return nil, fmt.Errorf("event %d: %v, after a bookmark at %d", i, e, position)
			}
			told = append(told, e)
			continue
		}
		if e.revision < max(position, d.revision) {
			return nil, fmt.Errorf("event %d: %v, below %d", i, e, max(position, d.revision))
		}
		if last := len(told) - 1; last >= 0 && (!d.ending || ends == 1 && !e.end) && told[last].revision > e.revision {
			return nil, fmt.Errorf("event %d: %v, after %v", i, e, told[last])
		}
		position = e.revision
		// All that is promised must have been told.
		if d.upTo == 0 || d.upTo < position {
			d.upTo = position
		}
	}
	return told, nil
}

// sameEvents compares as many events.
func sameEvents(got, want []event) error {
	for i := range got {
		if !got[i].equal(want[i]) {
			return unequal(got, want, i)
		}
	}
	return nil
}

// unequal says how events differ from one on.
func unequal(got, want []event, i int) error {
	say := func(what string) error { return fmt.Errorf("event %d %s: %v, not %v", i, what, got[i], want[i]) }
	switch {
	case i+1 < len(want) && got[i].equal(want[i+1]):
		return say("is missing")
	case i > 0 && got[i].equal(got[i-1]):
		return say("came twice")
	case got[i].key == want[i].key && got[i].revision == want[i].revision || got[i].kind == deleted && got[i].key == want[i].key:
		return errors.Join(say("is another"), errors.New(oracle.Difference(got[i].object, want[i].object)))
	}
	return say("is another")
}
