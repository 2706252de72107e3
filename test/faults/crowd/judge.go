package crowd

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/oracle"
)

// account is what a strict watcher asked for, and what it was told.
type account struct {
	selection
	// initial: it asked for the state at from or later first, else for what came after from.
	initial bool
	from    uint64
	events  []oracle.Event
}

// last is the highest revision that it was told; 0: none.
func (a account) last() (revision uint64) {
	for _, e := range a.events {
		revision = max(revision, e.Revision)
	}
	return revision
}

// begun returns the revision from which it was to be told all; false, if the initial events did not
// come to their end.
func (a account) begun() (from uint64, ok bool) {
	if !a.initial {
		return a.from, true
	}
	for _, e := range a.events {
		if e.EndsInitial {
			return e.Revision, true
		}
	}
	return 0, false
}

// judge says what is wrong with it. The history must be known up to its last revision.
func (h *History) judge(a account) error {
	if _, ok := a.begun(); !ok {
		return h.judgeBeginning(a)
	}
	return h.truth(a).Judge(a.events, true)
}

// truth is what it must be told.
func (h *History) truth(a account) oracle.Watch {
	from, _ := a.begun()
	truth := oracle.Watch{
		Begins: oracle.FromRevision, Bookmarks: true, Revision: a.from, Least: a.from, Most: math.MaxUint64,
		From: from, Events: h.expected(a.selection, from),
	}
	if a.initial {
		truth.Begins, truth.Ending, truth.State = oracle.FromState, true, map[string][]byte{}
		for _, o := range h.state(a.selection, from) {
			truth.State[o.key()] = initially(o).Object
		}
	}
	return truth
}

// judgeBeginning is for initial events that did not come to their end: which state they are of is
// not known. Each must be of a version that there was, and they must be in order.
func (h *History) judgeBeginning(a account) error {
	for i, e := range a.events {
		if i > 0 && e.Key <= a.events[i-1].Key {
			return fmt.Errorf("%s among initial events after %s", e, a.events[i-1])
		}
		changes := h.since(a.Kind, e.Revision-1)
		if len(changes) == 0 || !a.has(changes[0].after) || !e.Equal(initially(changes[0].after)) {
			return fmt.Errorf("%s among initial events, which there never was", e)
		}
	}
	return nil
}

// initially is how an object is told as a part of a state.
func initially(o *object) oracle.Event {
	return newEvent(watch.Added, o.key(), o.revision, o.version)
}

// expected is all that is to be told of a selection above a revision.
func (h *History) expected(s selection, above uint64) (all []oracle.Event) {
	for _, c := range h.since(s.Kind, above) {
		before, after := s.has(c.before), s.has(c.after)
		what, of := watch.Modified, c.after
		switch {
		case !before && !after:
			continue
		case !before:
			what = watch.Added
		case !after:
			what, of = watch.Deleted, c.before
		}
		all = append(all, newEvent(what, of.key(), c.revision, of.version))
	}
	return all
}

// lacks says what is to be told and was not yet.
func (h *History) lacks(a account) error {
	if _, ok := a.begun(); !ok {
		return fmt.Errorf("the initial events have not ended after %d", len(a.events))
	}
	truth := h.truth(a)
	truth.UpTo = math.MaxUint64
	return truth.Judge(a.events, false)
}
