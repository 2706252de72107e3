package crowd

import (
	"fmt"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/harness/poll"
)

// account is what a strict watcher asked for, and what it was told.
type account struct {
	selection
	// initial: it asked for the state at from or later first, else for what came after from.
	initial bool
	from    uint64
	events  []event
}

// last is the highest revision that it was told; 0: none.
func (a account) last() (revision uint64) {
	for _, e := range a.events {
		revision = max(revision, e.revision)
	}
	return revision
}

// begun returns the revision from which it was to be told all, and the events behind the initial
// ones; false, if the initial ones did not come to their end.
func (a account) begun() (from uint64, live []event, ok bool) {
	if !a.initial {
		return a.from, a.events, true
	}
	for i, e := range a.events {
		if e.end {
			return e.revision, a.events[i+1:], true
		}
	}
	return 0, nil, false
}

// judge says what is wrong with it. The history must be known up to its last revision.
func (h *History) judge(a account) error {
	from, live, ok := a.begun()
	if !ok {
		return h.judgeBeginning(a)
	}
	if a.initial {
		if err := h.judgeInitial(a, from); err != nil {
			return err
		}
	}
	want := h.expected(a.selection, from)
	told := from
	for _, e := range live {
		if e.revision < told {
			return poll.Wrong(fmt.Sprintf("%s after %d", e, told))
		}
		told = e.revision
		if e.what == watch.Bookmark {
			if len(want) > 0 && want[0].revision <= e.revision {
				return poll.Wrong(fmt.Sprintf("%s, and %s was not told", e, want[0]))
			}
			continue
		}
		if len(want) == 0 {
			return poll.Wrong(fmt.Sprintf("%s, where nothing more was written", e))
		}
		if e != want[0] {
			return poll.Wrong(fmt.Sprintf("%s (%x), where %s (%x) comes next", e, e.version[:4], want[0], want[0].version[:4]))
		}
		want = want[1:]
	}
	return nil
}

// judgeInitial holds initial events against the state at the revision of the bookmark that ends
// them.
func (h *History) judgeInitial(a account, at uint64) error {
	if at < a.from {
		return poll.Wrong(fmt.Sprintf("the state at %d, where %d was asked for", at, a.from))
	}
	want := h.state(a.selection, at)
	for i, e := range a.events {
		switch {
		case e.end && i < len(want):
			return poll.Wrong(fmt.Sprintf("%d initial events of the state at %d, not %d: %s is missing", i, at, len(want), want[i].key()))
		case e.end:
			return nil
		case i >= len(want):
			return poll.Wrong(fmt.Sprintf("%s in the state at %d, which has %d objects", e, at, len(want)))
		case e != initially(want[i]):
			return poll.Wrong(fmt.Sprintf("%s (%x) in the state at %d, where %s (%x) comes next",
				e, e.version[:4], at, initially(want[i]), want[i].version[:4]))
		}
	}
	return nil
}

// judgeBeginning is for initial events that did not come to their end: which state they are of is
// not known. Each must be of a version that there was, and they must be in order.
func (h *History) judgeBeginning(a account) error {
	for i, e := range a.events {
		if i > 0 && e.key <= a.events[i-1].key {
			return poll.Wrong(fmt.Sprintf("%s among initial events after %s", e, a.events[i-1]))
		}
		changes := h.since(a.Kind, e.revision-1)
		if len(changes) == 0 || !a.has(changes[0].after) || e != initially(changes[0].after) {
			return poll.Wrong(fmt.Sprintf("%s among initial events, which there never was", e))
		}
	}
	return nil
}

// initially is how an object is told as a part of a state.
func initially(o *object) event {
	return event{what: watch.Added, key: o.key(), revision: o.revision, version: o.version}
}

// expected is all that is to be told of a selection above a revision.
func (h *History) expected(s selection, above uint64) (all []event) {
	for _, c := range h.since(s.Kind, above) {
		before, after := s.has(c.before), s.has(c.after)
		e, of := event{revision: c.revision}, c.after
		switch {
		case !before && !after:
			continue
		case !before:
			e.what = watch.Added
		case !after:
			e.what, of = watch.Deleted, c.before
		default:
			e.what = watch.Modified
		}
		e.key, e.version = of.key(), of.version
		all = append(all, e)
	}
	return all
}

// lacks returns an event that is to be told and was not yet, or nil.
func (h *History) lacks(a account) error {
	from, live, ok := a.begun()
	if !ok {
		return fmt.Errorf("the initial events have not ended after %d", len(a.events))
	}
	told := 0
	for _, e := range live {
		if e.what != watch.Bookmark {
			told++
		}
	}
	if want := h.expected(a.selection, from); told < len(want) {
		return fmt.Errorf("%s was not told", want[told])
	}
	return nil
}
