package oracle

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
)

// event returns a change of an object at a revision.
func event(eventType watch.EventType, key string, revision uint64) Event {
	return Event{Type: eventType, Key: key, Revision: revision, Object: fmt.Appendf(nil, "%s at %d", key, revision)}
}

// bookmark returns a bookmark that does not end the initial events.
func bookmark(revision uint64) []Event { return []Event{{Type: watch.Bookmark, Revision: revision}} }

// initialEnd returns the bookmark that ends the initial events.
func initialEnd(revision uint64) []Event {
	return []Event{{Type: watch.Bookmark, Revision: revision, EndsInitial: true}}
}

// truth returns a Watch with the truth: a state at 10, and the changes after it.
func truth(begins Beginning) Watch {
	return Watch{
		Begins: begins, Bookmarks: true, MinRevision: 10, MaxRevision: 14, UpTo: 20, From: 10,
		State: map[string][]byte{"a": event("", "a", 3).Object, "b": event("", "b", 7).Object},
		Events: []Event{
			event(watch.Modified, "a", 11), event(watch.Added, "a/x", 12), event(watch.Deleted, "b", 14),
			event(watch.Added, "b", 16), event(watch.Modified, "a/x", 20),
		},
	}
}

// TestJudge: Watch.Judge accepts a stream of true events, and refuses one with a missing, doubled, early, late or wrong event.
// (The suites with a real kube-apiserver show that Judge accepts whatever it sends.)
func TestJudge(t *testing.T) {
	one := func(eventType watch.EventType, key string, revision uint64) []Event {
		return []Event{event(eventType, key, revision)}
	}
	at12 := []Event{event(watch.Added, "a", 11), event(watch.Added, "a/x", 12), event(watch.Added, "b", 7)}
	initial := slices.Concat(at12, initialEnd(12))
	events := truth(FromState).Events
	after12 := events[2:]
	streaming := truth(FromState)
	streaming.EndsInitial = true
	withState := truth(FromState) // without sendInitialEvents, so that no bookmark ends the initial events
	withState.Bookmarks = false
	resuming := truth(FromRevision)
	resuming.Revision = 11
	fromNow := truth(FromNow)
	fromNow.Bookmarks = false
	concat := slices.Concat[[]Event]
	for name, tt := range map[string]struct {
		watch      Watch
		got        []Event
		wantAccept bool
	}{
		"streaming list": {
			watch: streaming, wantAccept: true,
			got: concat(initial, bookmark(12), after12[:1], bookmark(15), after12[1:], bookmark(20)),
		},
		"watch with a state": {watch: withState, got: concat(at12, after12), wantAccept: true},
		"watch from 11":      {watch: resuming, got: concat(events[1:2], bookmark(12), events[2:], bookmark(25)), wantAccept: true},
		"watch from now":     {watch: fromNow, got: events[2:], wantAccept: true},

		// The initial events of a streaming list.
		"no bookmark ends the initial events":   {watch: streaming, got: concat(at12, after12)},
		"two bookmarks end the initial events":  {watch: streaming, got: concat(initial, initialEnd(12), after12)},
		"the end before the last initial event": {watch: streaming, got: concat(at12[:2], initialEnd(12), at12[2:], after12)},
		"the end at an earlier revision":        {watch: streaming, got: concat(at12, initialEnd(11), after12)},
		"the end at a later revision":           {watch: streaming, got: concat(at12, initialEnd(14), after12)},
		"the end after MaxRevision":             {watch: streaming, got: concat(at12, initialEnd(15), after12)},
		"a bookmark before the end":             {watch: streaming, got: concat(bookmark(10), at12, initialEnd(12), after12)},
		"a missing initial event":               {watch: streaming, got: concat(at12[1:], initialEnd(12), after12)},
		"an additional initial event":           {watch: streaming, got: concat(at12, one(watch.Added, "c", 1), initialEnd(12), after12)},
		"initial events not in order":           {watch: streaming, got: concat(at12[1:], at12[:1], initialEnd(12), after12)},
		"an older object in an initial event":   {watch: streaming, got: concat(one(watch.Added, "a", 3), at12[1:], initialEnd(12), after12)},
		"MODIFIED among the initial events":     {watch: streaming, got: concat(one(watch.Modified, "a", 11), at12[1:], initialEnd(12), after12)},

		// Events and bookmarks after them.
		"a missing event":                            {watch: streaming, got: concat(initial, after12[1:])},
		"the last event is missing":                  {watch: streaming, got: concat(initial, after12[:2])},
		"an event twice":                             {watch: streaming, got: concat(initial, after12[:1], after12)},
		"events in the wrong order":                  {watch: streaming, got: concat(initial, after12[1:2], after12[:1], after12[2:])},
		"an event that did not happen":               {watch: streaming, got: concat(initial, after12, one(watch.Modified, "b", 21))},
		"an event of another type":                   {watch: streaming, got: concat(initial, one(watch.Modified, "b", 14), after12[1:])},
		"a bookmark before an event of its revision": {watch: streaming, got: concat(initial, bookmark(14), after12)},
		"a bookmark below the last event":            {watch: streaming, got: concat(initial, after12, bookmark(19))},

		// Other watches.
		"a state of two revisions":         {watch: withState, got: concat(one(watch.Added, "a", 3), at12[1:], after12)},
		"a bookmark that was not asked":    {watch: withState, got: concat(at12, after12, bookmark(20))},
		"from 11, too early":               {watch: resuming, got: events},
		"from 11, too late":                {watch: resuming, got: events[2:]},
		"from 11, a bookmark below it":     {watch: resuming, got: concat(bookmark(10), events[1:])},
		"from 11, an object's other bytes": {watch: resuming, got: concat([]Event{{Type: watch.Added, Key: "a/x", Revision: 12}}, events[2:])},
		"from now, too late":               {watch: fromNow, got: events[4:]},
		"from now, a missing event":        {watch: fromNow, got: concat(events[2:3], events[4:])},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tt.watch.Judge(tt.got, false); (err == nil) != tt.wantAccept {
				t.Errorf("got error %v, want none: %t", err, tt.wantAccept)
			}
		})
	}
}

// TestJudgeEnded: a stream that has ended may lack the last events, but none up to its last bookmark.
func TestJudgeEnded(t *testing.T) {
	resuming := truth(FromRevision)
	resuming.Revision = 11
	first := resuming.Events[1:2] // the first event after 11; the next is at 14
	if err := resuming.Judge(first, true); err != nil {
		t.Errorf("without the last events: got error %v, want none", err)
	}
	if resuming.Judge(slices.Concat(first, bookmark(16)), true) == nil {
		t.Error("without an event before its last bookmark: got no error")
	}
}
