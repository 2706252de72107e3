package oracle

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
)

// event returns an event for a write of an object at a revision. Its Object differs at each revision.
func event(eventType watch.EventType, key string, revision uint64) Event {
	return Event{Type: eventType, Key: key, Revision: revision, Object: fmt.Appendf(nil, "%s at %d", key, revision)}
}

// bookmark returns a bookmark that does not end the initial events.
func bookmark(revision uint64) Event { return Event{Type: watch.Bookmark, Revision: revision} }

// initialEnd returns the bookmark that ends the initial events.
func initialEnd(revision uint64) Event {
	return Event{Type: watch.Bookmark, Revision: revision, EndsInitial: true}
}

// The name of an event says its type, its object and its revision.
var (
	// All events after revision 10.
	modifyA11 = event(watch.Modified, "a", 11)
	addB12    = event(watch.Added, "b", 12)
	deleteC14 = event(watch.Deleted, "c", 14)
	addC16    = event(watch.Added, "c", 16)
	modifyB20 = event(watch.Modified, "b", 20)

	// The state at 10 has the objects a and c, which were written at 3 and 7. A watch that begins with the state at 12 has the
	// initial events addA11, addB12 and addC7.
	addA3  = event(watch.Added, "a", 3)
	addC7  = event(watch.Added, "c", 7)
	addA11 = event(watch.Added, "a", 11)
)

// withTruth returns w with the truth above. The watch may begin with the state of 10 to 14, and must have all events up to 20.
func withTruth(w Watch) Watch {
	w.MinRevision = 10
	w.MaxRevision = 14
	w.UpTo = 20
	w.From = 10
	w.State = map[string][]byte{"a": addA3.Object, "c": addC7.Object}
	w.Events = []Event{modifyA11, addB12, deleteC14, addC16, modifyB20}
	return w
}

// The watches that tests judge.
var (
	streamingList = withTruth(Watch{Begins: FromState, EndsInitial: true, Bookmarks: true})
	watchOfState  = withTruth(Watch{Begins: FromState}) // no sendInitialEvents, so no bookmark ends the initial events
	watchFrom11   = withTruth(Watch{Begins: FromRevision, Revision: 11, Bookmarks: true})
	watchFromNow  = withTruth(Watch{Begins: FromNow})
)

// The values of Judge's parameter ended.
const goesOn, hasEnded = false, true

// TestJudgeAccepts: Watch.Judge accepts a stream of true events. (The suites with a real kube-apiserver show that it accepts
// whatever kube-apiserver sends.)
func TestJudgeAccepts(t *testing.T) {
	for name, tt := range map[string]struct {
		watch Watch
		got   []Event
	}{
		"streaming list": {
			watch: streamingList,
			got: []Event{
				addA11, addB12, addC7, initialEnd(12), bookmark(12), deleteC14, bookmark(15), addC16, modifyB20, bookmark(20),
			},
		},
		"watch with a state": {watch: watchOfState, got: []Event{addA11, addB12, addC7, deleteC14, addC16, modifyB20}},
		"watch from 11":      {watch: watchFrom11, got: []Event{addB12, bookmark(12), deleteC14, addC16, modifyB20, bookmark(25)}},
		"watch from now":     {watch: watchFromNow, got: []Event{deleteC14, addC16, modifyB20}},
	} {
		if err := tt.watch.Judge(tt.got, goesOn); err != nil {
			t.Errorf("%s: got the error %v, want none", name, err)
		}
	}
}

// TestJudgeRefuses: Watch.Judge refuses a stream with a missing, doubled, early, late or wrong event.
func TestJudgeRefuses(t *testing.T) {
	expectRefusals := func(watchName string, w Watch, streams map[string][]Event) {
		for mistake, got := range streams {
			if w.Judge(got, goesOn) == nil {
				t.Errorf("%s, %s: got no error, want one", watchName, mistake)
			}
		}
	}
	expectRefusals("streaming list", streamingList, map[string][]Event{
		// Among the initial events.
		"no bookmark ends the initial events":  {addA11, addB12, addC7, deleteC14, addC16, modifyB20},
		"two bookmarks end the initial events": {addA11, addB12, addC7, initialEnd(12), initialEnd(12), deleteC14, addC16, modifyB20},
		"the end before the last of them":      {addA11, addB12, initialEnd(12), addC7, deleteC14, addC16, modifyB20},
		"the end at an earlier revision":       {addA11, addB12, addC7, initialEnd(11), deleteC14, addC16, modifyB20},
		"the end at a later revision":          {addA11, addB12, addC7, initialEnd(14), deleteC14, addC16, modifyB20},
		"the end after MaxRevision":            {addA11, addB12, addC7, initialEnd(15), deleteC14, addC16, modifyB20},
		"a bookmark before the end":            {bookmark(10), addA11, addB12, addC7, initialEnd(12), deleteC14, addC16, modifyB20},
		"one is missing":                       {addB12, addC7, initialEnd(12), deleteC14, addC16, modifyB20},
		"one too many":                         {addA11, addB12, addC7, event(watch.Added, "d", 1), initialEnd(12), deleteC14, addC16, modifyB20},
		"not in the order of keys":             {addB12, addC7, addA11, initialEnd(12), deleteC14, addC16, modifyB20},
		"one has an older object":              {addA3, addB12, addC7, initialEnd(12), deleteC14, addC16, modifyB20},
		"one is MODIFIED":                      {modifyA11, addB12, addC7, initialEnd(12), deleteC14, addC16, modifyB20},

		// After the initial events.
		"a missing event":                   {addA11, addB12, addC7, initialEnd(12), addC16, modifyB20},
		"the last event is missing":         {addA11, addB12, addC7, initialEnd(12), deleteC14, addC16},
		"an event twice":                    {addA11, addB12, addC7, initialEnd(12), deleteC14, deleteC14, addC16, modifyB20},
		"events in the wrong order":         {addA11, addB12, addC7, initialEnd(12), addC16, deleteC14, modifyB20},
		"an event that did not happen":      {addA11, addB12, addC7, initialEnd(12), deleteC14, addC16, modifyB20, event(watch.Modified, "c", 21)},
		"an event of another type":          {addA11, addB12, addC7, initialEnd(12), event(watch.Modified, "c", 14), addC16, modifyB20},
		"a bookmark before its revision":    {addA11, addB12, addC7, initialEnd(12), bookmark(14), deleteC14, addC16, modifyB20},
		"a bookmark below the event before": {addA11, addB12, addC7, initialEnd(12), deleteC14, addC16, modifyB20, bookmark(19)},
	})
	expectRefusals("watch with a state", watchOfState, map[string][]Event{
		"objects of two revisions":    {addA3, addB12, addC7, deleteC14, addC16, modifyB20},
		"a bookmark nobody asked for": {addA11, addB12, addC7, deleteC14, addC16, modifyB20, bookmark(20)},
	})
	expectRefusals("watch from 11", watchFrom11, map[string][]Event{
		"begins too early":       {modifyA11, addB12, deleteC14, addC16, modifyB20},
		"begins too late":        {deleteC14, addC16, modifyB20},
		"a bookmark below 11":    {bookmark(10), addB12, deleteC14, addC16, modifyB20},
		"an event without bytes": {{Type: watch.Added, Key: "b", Revision: 12}, deleteC14, addC16, modifyB20},
	})
	expectRefusals("watch from now", watchFromNow, map[string][]Event{
		"begins after MaxRevision": {modifyB20},
		"a missing event":          {deleteC14, modifyB20},
	})
}

// TestJudgeEnded: a stream that has ended may lack the last events, but no event up to the revision of its last bookmark.
func TestJudgeEnded(t *testing.T) {
	if err := watchFrom11.Judge([]Event{addB12}, hasEnded); err != nil {
		t.Errorf("without the last events: got the error %v, want none", err)
	}
	if watchFrom11.Judge([]Event{addB12, bookmark(16)}, hasEnded) == nil {
		t.Error("without an event before the last bookmark: got no error, want one")
	}
}
