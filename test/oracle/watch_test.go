package oracle

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
)

// event returns a change of an object at a revision.
func event(kind watch.EventType, key string, revision uint64) Event {
	return Event{Type: kind, Key: key, Revision: revision, Object: fmt.Appendf(nil, "%s at %d", key, revision)}
}

// bookmark returns a bookmark that does not end the initial events.
func bookmark(revision uint64) []Event { return []Event{{Type: watch.Bookmark, Revision: revision}} }

// initialEnd returns the bookmark that ends the initial events.
func initialEnd(revision uint64) []Event {
	return []Event{{Type: watch.Bookmark, Revision: revision, EndsInitial: true}}
}

// truth returns a Watch with the truth: a state at 10, and what happened then.
func truth() Watch {
	return Watch{
		Bookmarks: true, MinRevision: 10, MaxRevision: 14, UpTo: 20, From: 10,
		State: map[string][]byte{"a": event("", "a", 3).Object, "b": event("", "b", 7).Object},
		Events: []Event{
			event(watch.Modified, "a", 11), event(watch.Added, "a/x", 12), event(watch.Deleted, "b", 14),
			event(watch.Added, "b", 16), event(watch.Modified, "a/x", 20),
		},
	}
}

// TestJudge: Watch.Judge accepts a stream of true events, and refuses a stream with a missing, doubled, early or wrong one.
func TestJudge(t *testing.T) {
	events := truth().Events
	list := func(events ...Event) []Event { return events }
	at12 := list(event(watch.Added, "a", 11), event(watch.Added, "a/x", 12), event(watch.Added, "b", 7))
	initial := slices.Concat(at12, initialEnd(12))
	after12 := events[2:]
	streaming := truth()
	streaming.Begins, streaming.EndsInitial = FromState, true
	old := streaming // a watch without sendInitialEvents, whose initial events no bookmark ends
	old.EndsInitial, old.Bookmarks = false, false
	resuming := truth()
	resuming.Begins, resuming.Revision = FromRevision, 11
	now := truth()
	now.Begins, now.Bookmarks = FromNow, false
	concat := slices.Concat[[]Event]
	for name, tt := range map[string]struct {
		want     Watch
		got      []Event
		wantPass bool
	}{
		"streaming": {want: streaming, got: concat(initial, after12), wantPass: true},
		"streaming, bookmark between two events": {
			want: streaming, wantPass: true,
			got: concat(at12, initialEnd(13), after12),
		},
		"streaming, with bookmarks": {
			want: streaming, wantPass: true,
			got: concat(initial, bookmark(12), after12[:1], bookmark(15), after12[1:], bookmark(20)),
		},
		"streaming, with an event that did not happen": {
			want: streaming,
			got:  concat(initial, after12, list(event(watch.Modified, "b", 21))),
		},
		"no end of the initial events":      {want: streaming, got: concat(at12, after12)},
		"two ends":                          {want: streaming, got: concat(initial, initialEnd(12), after12)},
		"end before the last initial event": {want: streaming, got: concat(at12[:2], initialEnd(12), at12[2:], after12)},
		"end at an earlier revision":        {want: streaming, got: concat(at12, initialEnd(11), after12)},
		"end at a later revision":           {want: streaming, got: concat(at12, initialEnd(14), after12)},
		"end after MaxRevision":             {want: streaming, got: concat(at12, initialEnd(15), after12)},
		"a bookmark before the end":         {want: streaming, got: concat(bookmark(10), at12, initialEnd(12), after12)},
		"a missing initial event":           {want: streaming, got: concat(at12[1:], initialEnd(12), after12)},
		"an additional initial event": {
			want: streaming,
			got:  concat(at12, list(event(watch.Added, "c", 1)), initialEnd(12), after12),
		},
		"an initial event twice":   {want: streaming, got: concat(at12[:1], at12, initialEnd(12), after12)},
		"not in the order of keys": {want: streaming, got: concat(at12[1:], at12[:1], initialEnd(12), after12)},
		"an older object in an initial event": {
			want: streaming,
			got:  concat(list(event(watch.Added, "a", 3)), at12[1:], initialEnd(12), after12),
		},
		"MODIFIED among the initial events": {
			want: streaming,
			got:  concat(list(event(watch.Modified, "a", 11)), at12[1:], initialEnd(12), after12),
		},
		"a missing event":        {want: streaming, got: concat(initial, after12[1:])},
		"the last event missing": {want: streaming, got: concat(initial, after12[:2])},
		"an event twice":         {want: streaming, got: concat(initial, after12[:1], after12)},
		"two events in the wrong order": {
			want: streaming,
			got:  concat(initial, list(after12[1], after12[0]), after12[2:]),
		},
		"a bookmark before an event of its revision":     {want: streaming, got: concat(initial, bookmark(14), after12)},
		"a bookmark below the last event":                {want: streaming, got: concat(initial, after12, bookmark(19))},
		"a bookmark below the end of the initial events": {want: streaming, got: concat(initial, bookmark(11), after12)},
		"an event of another type": {
			want: streaming,
			got:  concat(initial, list(event(watch.Modified, "b", 14)), after12[1:]),
		},
		"old": {want: old, got: concat(at12, after12), wantPass: true},
		"old, at the first revision": {
			want: old, wantPass: true,
			got: concat(list(event(watch.Added, "a", 3), event(watch.Added, "b", 7)), events),
		},
		"old, with objects of two states": {
			want: old,
			got:  concat(list(event(watch.Added, "a", 3), event(watch.Added, "a/x", 12), event(watch.Added, "b", 7)), after12),
		},
		"old, state after MaxRevision": {
			want: old,
			got:  concat(list(event(watch.Added, "a", 11), event(watch.Added, "a/x", 20), event(watch.Added, "b", 16))),
		},
		"old, with an end":     {want: old, got: concat(initial, after12)},
		"old, with a bookmark": {want: old, got: concat(at12, after12, bookmark(20))},
		"resuming":             {want: resuming, got: events[1:], wantPass: true},
		"resuming, with bookmarks": {
			want: resuming, wantPass: true,
			got: concat(events[1:2], bookmark(12), events[2:], bookmark(25)),
		},
		"resuming, too early":                     {want: resuming, got: events},
		"resuming, too late":                      {want: resuming, got: events[2:]},
		"resuming, no events":                     {want: resuming, got: nil},
		"resuming, with initial events":           {want: resuming, got: concat(initial, after12)},
		"resuming, a bookmark below the revision": {want: resuming, got: concat(bookmark(10), events[1:])},
		"resuming, other bytes": {
			want: resuming,
			got:  concat(list(Event{Type: watch.Added, Key: "a/x", Revision: 12, Object: []byte("?")}), events[2:]),
		},
		"resuming, a bookmark above the last event": {
			want: resuming, wantPass: true,
			got: concat(events[1:], bookmark(30)),
		},
		"from now":                                    {want: now, got: events[2:], wantPass: true},
		"from now, too late":                          {want: now, got: events[4:]},
		"from now, a missing event":                   {want: now, got: concat(events[2:3], events[4:])},
		"from now, no events":                         {want: now, got: nil},
		"from now, with a bookmark":                   {want: now, got: concat(events[2:], bookmark(20))},
		"from now, with an event that did not happen": {want: now, got: concat(events, list(event(watch.Added, "z", 21)))},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tt.want.Judge(tt.got, false); (err == nil) != tt.wantPass {
				t.Errorf("Judge returned %v, want a pass: %t", err, tt.wantPass)
			}
		})
	}
	// A stream that has ended may lack the last events, but none up to its last bookmark.
	whole := concat(initial, after12)
	for n := range len(whole) + 1 {
		if err := streaming.Judge(whole[:n], true); err != nil {
			t.Errorf("ended after %d events: %v", n, err)
		}
	}
	if streaming.Judge(concat(initial, after12[:1], bookmark(16)), true) == nil {
		t.Error("a stream passes that has ended without an event below its last bookmark")
	}
}
