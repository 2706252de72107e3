package oracle

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
)

// event is a change of an object at a revision.
func event(kind watch.EventType, key string, revision uint64) Event {
	return Event{Type: kind, Key: key, Revision: revision, Object: fmt.Appendf(nil, "%s at %d", key, revision)}
}

// bookmark is an ordinary one.
func bookmark(revision uint64) []Event { return []Event{{Type: watch.Bookmark, Revision: revision}} }

// initialEnd is the bookmark that ends the initial events.
func initialEnd(revision uint64) []Event {
	return []Event{{Type: watch.Bookmark, Revision: revision, EndsInitial: true}}
}

// truth has a state at 10, and what came then. A selection leaves nothing but a DELETED with the
// object that was before it.
func truth() Watch {
	return Watch{
		Bookmarks: true, Least: 10, Most: 14, UpTo: 20, From: 10,
		State: map[string][]byte{"a": event("", "a", 3).Object, "b": event("", "b", 7).Object},
		Events: []Event{
			event(watch.Modified, "a", 11), event(watch.Added, "a/x", 12), event(watch.Deleted, "b", 14),
			event(watch.Added, "b", 16), event(watch.Modified, "a/x", 20),
		},
	}
}

// TestJudge: a stream that tells what is true passes, and no other.
func TestJudge(t *testing.T) {
	events := truth().Events
	list := func(events ...Event) []Event { return events }
	at12 := list(event(watch.Added, "a", 11), event(watch.Added, "a/x", 12), event(watch.Added, "b", 7))
	initial := slices.Concat(at12, initialEnd(12)) // the state at 12, and its end
	after12 := events[2:]
	streaming := truth()
	streaming.Begins, streaming.Ending = FromState, true
	old := streaming // the old kind of watch, without an end of the initial events
	old.Ending, old.Bookmarks = false, false
	resuming := truth()
	resuming.Begins, resuming.Revision = FromRevision, 11
	now := truth()
	now.Begins, now.Bookmarks = FromNow, false
	concat := slices.Concat[[]Event]
	for name, tt := range map[string]struct {
		demand   Watch
		told     []Event
		wantPass bool
	}{
		"streaming": {demand: streaming, told: concat(initial, after12), wantPass: true},
		"streaming, of the next moment": {
			demand: streaming, wantPass: true,
			told: concat(at12, initialEnd(13), after12),
		},
		"streaming, with bookmarks": {
			demand: streaming, wantPass: true,
			told: concat(initial, bookmark(12), after12[:1], bookmark(15), after12[1:], bookmark(20)),
		},
		"streaming, and more": {
			demand: streaming,
			told:   concat(initial, after12, list(event(watch.Modified, "b", 21))),
		},
		"no end":                     {demand: streaming, told: concat(at12, after12)},
		"two ends":                   {demand: streaming, told: concat(initial, initialEnd(12), after12)},
		"the end too early":          {demand: streaming, told: concat(at12[:2], initialEnd(12), at12[2:], after12)},
		"the end of before":          {demand: streaming, told: concat(at12, initialEnd(11), after12)},
		"the end of later":           {demand: streaming, told: concat(at12, initialEnd(14), after12)},
		"the end of what is to come": {demand: streaming, told: concat(at12, initialEnd(15), after12)},
		"a bookmark before the end":  {demand: streaming, told: concat(bookmark(10), at12, initialEnd(12), after12)},
		"an initial one missing":     {demand: streaming, told: concat(at12[1:], initialEnd(12), after12)},
		"an initial one too many": {
			demand: streaming,
			told:   concat(at12, list(event(watch.Added, "c", 1)), initialEnd(12), after12),
		},
		"an initial one twice":     {demand: streaming, told: concat(at12[:1], at12, initialEnd(12), after12)},
		"not in the order of keys": {demand: streaming, told: concat(at12[1:], at12[:1], initialEnd(12), after12)},
		"an initial one of before": {
			demand: streaming,
			told:   concat(list(event(watch.Added, "a", 3)), at12[1:], initialEnd(12), after12),
		},
		"an initial change": {
			demand: streaming,
			told:   concat(list(event(watch.Modified, "a", 11)), at12[1:], initialEnd(12), after12),
		},
		"dropped":            {demand: streaming, told: concat(initial, after12[1:])},
		"dropped at the end": {demand: streaming, told: concat(initial, after12[:2])},
		"doubled":            {demand: streaming, told: concat(initial, after12[:1], after12)},
		"reordered": {
			demand: streaming,
			told:   concat(initial, list(after12[1], after12[0]), after12[2:]),
		},
		"a bookmark ahead":          {demand: streaming, told: concat(initial, bookmark(14), after12)},
		"a bookmark behind":         {demand: streaming, told: concat(initial, after12, bookmark(19))},
		"a bookmark behind the end": {demand: streaming, told: concat(initial, bookmark(11), after12)},
		"of another type": {
			demand: streaming,
			told:   concat(initial, list(event(watch.Modified, "b", 14)), after12[1:]),
		},
		"without an end": {demand: old, told: concat(at12, after12), wantPass: true},
		"without an end, at the first": {
			demand: old, wantPass: true,
			told: concat(list(event(watch.Added, "a", 3), event(watch.Added, "b", 7)), events),
		},
		"without an end, mixed": {
			demand: old,
			told:   concat(list(event(watch.Added, "a", 3), event(watch.Added, "a/x", 12), event(watch.Added, "b", 7)), after12),
		},
		"without an end, too new": {
			demand: old,
			told:   concat(list(event(watch.Added, "a", 11), event(watch.Added, "a/x", 20), event(watch.Added, "b", 16))),
		},
		"without an end, with one":        {demand: old, told: concat(initial, after12)},
		"without an end, with a bookmark": {demand: old, told: concat(at12, after12, bookmark(20))},
		"resuming":                        {demand: resuming, told: events[1:], wantPass: true},
		"resuming, with bookmarks": {
			demand: resuming, wantPass: true,
			told: concat(events[1:2], bookmark(12), events[2:], bookmark(25)),
		},
		"resuming, too early":            {demand: resuming, told: events},
		"resuming, too late":             {demand: resuming, told: events[2:]},
		"resuming, nothing":              {demand: resuming, told: nil},
		"resuming, with initial ones":    {demand: resuming, told: concat(initial, after12)},
		"resuming, a bookmark of before": {demand: resuming, told: concat(bookmark(10), events[1:])},
		"resuming, other bytes": {
			demand: resuming,
			told:   concat(list(Event{Type: watch.Added, Key: "a/x", Revision: 12, Object: []byte("?")}), events[2:]),
		},
		"resuming, promised and not told": {
			demand: resuming, wantPass: true,
			told: concat(events[1:], bookmark(30)),
		},
		"from now":                         {demand: now, told: events[2:], wantPass: true},
		"from now, too late":               {demand: now, told: events[4:]},
		"from now, a hole":                 {demand: now, told: concat(events[2:3], events[4:])},
		"from now, nothing":                {demand: now, told: nil},
		"from now, with a bookmark":        {demand: now, told: concat(events[2:], bookmark(20))},
		"from now, told before it was due": {demand: now, told: concat(events, list(event(watch.Added, "z", 21)))},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tt.demand.Judge(tt.told, false); (err == nil) != tt.wantPass {
				t.Errorf("judged %v, want a pass: %t", err, tt.wantPass)
			}
		})
	}
	// A stream that has ended may lack what comes last, but nothing that a bookmark has promised.
	whole := concat(initial, after12)
	for n := range len(whole) + 1 {
		if err := streaming.Judge(whole[:n], true); err != nil {
			t.Errorf("ended after %d events: %v", n, err)
		}
	}
	if streaming.Judge(concat(initial, after12[:1], bookmark(16)), true) == nil {
		t.Error("ended before what a bookmark has promised: it passes")
	}
}
