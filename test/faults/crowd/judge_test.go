package crowd

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/oracle"
)

// written is a history: pods of a node, one of which comes to it, changes its label, and goes.
func written(t *testing.T) *History {
	t.Helper()
	h := &History{}
	write := func(revision uint64, name, node, shade string) {
		key := "/registry/pods/ns/" + name
		var value []byte
		if node != "gone" {
			var err error
			value, err = json.Marshal(kinds.Fields{
				"metadata": kinds.Fields{"namespace": "ns", "name": name, "labels": kinds.Fields{shadeLabel: shade}, "annotations": kinds.Fields{"touched": touch(revision)}},
				"spec":     kinds.Fields{"nodeName": node},
			})
			expect.NoError(t, err)
		}
		expect.NoError(t, h.add([]kinds.Kind{load.Pods}, key, value, revision))
	}
	write(1, "a", "node-1", "dark")
	write(2, "b", "", "dark")
	write(3, "c", "node-2", "dark")
	write(4, "b", "node-1", "dark")
	write(5, "a", "node-1", "light")
	write(6, "a", "gone", "")
	write(7, "b", "node-1", "light")
	expect.NoError(t, h.add([]kinds.Kind{load.Pods}, "/registry/leases/x", []byte("{}"), 9))
	return h
}

// touch is an annotation of the write of a revision.
func touch(n uint64) string { return strings.Repeat("x", int(n)) }

var onNode = selection{Kind: load.Pods, node: "node-1"}

// told is what a watcher of the node is told of that history: of what came after 1, or from the
// state at 4 on.
func told(t *testing.T, h *History, initial bool) account {
	t.Helper()
	a := account{selection: onNode, from: 1}
	from := a.from
	if initial {
		a.initial, from = true, 4
		for _, o := range h.state(onNode, from) {
			a.events = append(a.events, initially(o))
		}
		a.events = append(a.events, oracle.Event{Type: watch.Bookmark, Revision: from, EndsInitial: true})
	}
	a.events = append(a.events, h.expected(onNode, from)...)
	a.events = append(a.events, oracle.Event{Type: watch.Bookmark, Revision: 8})
	return a
}

// TestExpected: what is told of a selection.
func TestExpected(t *testing.T) {
	h := written(t)
	for what, c := range map[string]struct {
		of   selection
		want []string
	}{
		"a node":  {onNode, []string{"ADDED ns/b at 4", "MODIFIED ns/a at 5", "DELETED ns/a at 6", "MODIFIED ns/b at 7"}},
		"a label": {selection{Kind: load.Pods, label: shadeLabel, value: "dark"}, []string{"ADDED ns/b at 2", "ADDED ns/c at 3", "MODIFIED ns/b at 4", "DELETED ns/a at 5", "DELETED ns/b at 7"}},
		"a name":  {selection{Kind: load.Pods, namespace: "ns", name: "c"}, []string{"ADDED ns/c at 3"}},
		"others":  {selection{Kind: load.Pods, namespace: "other"}, nil},
	} {
		var got []string
		for _, e := range h.expected(c.of, 1) {
			got = append(got, e.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, not %q", what, got, c.want)
		}
	}
}

// TestJudge: what is right passes, and whatever is false, missing, told twice or out of order is
// found.
func TestJudge(t *testing.T) {
	h := written(t)
	for _, initial := range []bool{false, true} {
		a := told(t, h, initial)
		if err := h.judge(a); err != nil {
			t.Errorf("initial %v: what is right is wrong: %v", initial, err)
		}
		if err := h.lacks(a); err != nil {
			t.Errorf("initial %v: what was told is missing: %v", initial, err)
		}
		for i, e := range a.events {
			if e.Type == watch.Bookmark {
				continue
			}
			lies := map[string][]oracle.Event{"missing": {}, "twice": {e, e}, "of another type": {e}, "another version": {e}, "another object": {e}, "another revision": {e}}
			lies["of another type"][0].Type = map[watch.EventType]watch.EventType{watch.Added: watch.Modified, watch.Modified: watch.Deleted, watch.Deleted: watch.Added}[e.Type]
			lies["another version"][0].Object = append([]byte{e.Object[0] + 1}, e.Object[1:]...)
			lies["another object"][0].Key += "x"
			lies["another revision"][0] = newEvent(e.Type, e.Key, e.Revision+1, [sha256.Size]byte(e.Object))
			for what, lie := range lies {
				b := a
				b.events = slices.Concat(a.events[:i], lie, a.events[i+1:])
				if h.judge(b) == nil {
					t.Errorf("initial %v: %s: %s is not found", initial, e, what)
				}
			}
			if i+1 < len(a.events) && a.events[i+1].Type != watch.Bookmark {
				b := a
				b.events = slices.Clone(a.events)
				b.events[i], b.events[i+1] = b.events[i+1], b.events[i]
				if h.judge(b) == nil {
					t.Errorf("initial %v: %s out of order is not found", initial, e)
				}
			}
		}
	}
}

// TestJudgeBookmarks: a bookmark promises that all up to it was told.
func TestJudgeBookmarks(t *testing.T) {
	h := written(t)
	for what, c := range map[string]struct {
		initial bool
		change  func(*account)
	}{
		"above what was told":          {false, func(a *account) { a.events = []oracle.Event{{Type: watch.Bookmark, Revision: 4}} }},
		"below what was told":          {false, func(a *account) { a.events[len(a.events)-1].Revision = 6 }},
		"below what was asked for":     {false, func(a *account) { a.events = []oracle.Event{{Type: watch.Bookmark, Revision: 0}} }},
		"a state older than asked for": {true, func(a *account) { a.from = 5 }},
		"a state at another revision":  {true, func(a *account) { a.events[2].Revision = 3 }},
	} {
		a := told(t, h, c.initial)
		c.change(&a)
		if h.judge(a) == nil {
			t.Errorf("%s: it is not found", what)
		}
	}
}

// TestJudgeBeginning: of initial events that did not come to their end, each must have been, and
// they must be in order.
func TestJudgeBeginning(t *testing.T) {
	h := written(t)
	a := told(t, h, true)
	a.events = a.events[:2]
	if err := h.judge(a); err != nil {
		t.Errorf("what is right is wrong: %v", err)
	}
	if h.lacks(a) == nil {
		t.Error("the end is not missing")
	}
	for what, events := range map[string][]oracle.Event{
		"out of order": {a.events[1], a.events[0]},
		"false":        {newEvent(watch.Added, "ns/a", 2, [sha256.Size]byte{})},
		"of no state":  h.expected(onNode, 4)[:1],
	} {
		b := a
		b.events = events
		if h.judge(b) == nil {
			t.Errorf("%s: it is not found", what)
		}
	}
}

// TestLacks: as long as an event is missing, it is said.
func TestLacks(t *testing.T) {
	h := written(t)
	a := told(t, h, false)
	a.events = a.events[:3]
	if err := h.lacks(a); err == nil || !strings.Contains(err.Error(), "ns/b at 7") {
		t.Errorf("it says %v", err)
	}
}
