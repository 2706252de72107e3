package differential

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/oracle"
)

// open returns a stream that goes on after these events.
func open(events ...oracle.Event) *stream { return &stream{progress: progress{events: events}} }

// ended returns a stream that has ended in order after these events.
func ended(events ...oracle.Event) *stream {
	return &stream{progress: progress{events: events, hasEnded: true}}
}

// brokenOff returns a stream that has broken off after these events.
func brokenOff(events ...oracle.Event) *stream {
	return &stream{progress: progress{events: events, hasEnded: true, err: errors.New("cut")}}
}

// TestCompareEvents: watchPair.compareEvents finds each kind of difference between the streams of kube-apiserver (direct) and
// listproxy (proxy). It compares both with the track, which has all events that must come. If kube-apiserver's own stream does
// not fit the track, the test package is wrong (wrongReference). Package oracle tests which events are wrong.
func TestCompareEvents(t *testing.T) {
	// newEvent returns an event whose object is text, with the revision in it.
	newEvent := func(eventType watch.EventType, revision uint64, text string) oracle.Event {
		return oracle.Event{Type: eventType, Key: "n/a", Revision: revision, Object: fmt.Appendf(nil, text, revision)}
	}
	change := newEvent(watch.Modified, 12, "a at %d")
	changeOfOtherBytes := newEvent(watch.Modified, 12, "A at %d")
	bookmark := newEvent(watch.Bookmark, 13, "mark at %d")
	bookmarkOfOtherBytes := newEvent(watch.Bookmark, 14, "Mark at %d")
	refusal := newEvent(watch.Error, 0, "expired (%d)")
	laterRefusal := newEvent(watch.Error, 7, "expired (%d)")
	otherRefusal := newEvent(watch.Error, 0, "no (%d)")
	for name, tt := range map[string]struct {
		direct, proxy *stream
		track         *stream        // nil: a stream that has the change and goes on
		wantKind      differenceKind // "": no difference
	}{
		"equal streams":                        {direct: open(change, bookmark), proxy: open(change, bookmark)},
		"no bookmark in listproxy's":           {direct: open(change, bookmark), proxy: open(change)},
		"a missing change":                     {direct: open(change, bookmark), proxy: open(), wantKind: wrongEvents},
		"a change with other bytes":            {direct: open(change), proxy: open(changeOfOtherBytes), wantKind: wrongEvents},
		"a missing change in kube-apiserver's": {direct: open(), proxy: open(change), wantKind: wrongReference},
		"a bookmark with other bytes": {
			direct: open(change, bookmark), proxy: open(change, bookmarkOfOtherBytes), wantKind: wrongBookmark,
		},
		"only listproxy's ended":               {direct: open(change), proxy: ended(change), wantKind: wrongEnd},
		"only kube-apiserver's ended":          {direct: ended(change), proxy: open(change), wantKind: wrongEnd},
		"both ended":                           {direct: ended(change), proxy: ended(change)},
		"listproxy's broke off":                {direct: open(change), proxy: brokenOff(change), wantKind: wrongEnd},
		"an ERROR from listproxy only":         {direct: open(change), proxy: ended(refusal), wantKind: wrongRefusal},
		"an ERROR from kube-apiserver only":    {direct: ended(refusal), proxy: open(), wantKind: wrongRefusal},
		"the same ERROR, but for the revision": {direct: ended(laterRefusal), proxy: ended(refusal)},
		"an ERROR with another message":        {direct: ended(refusal), proxy: ended(otherRefusal), wantKind: wrongRefusal},
		"the track has ended":                  {direct: open(change), proxy: open(change), track: ended(change), wantKind: incomparable},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.track == nil {
				tt.track = open(change)
			}
			const from, upTo = 10, 12
			p := &watchPair{
				c:       &comparator{report: newReport()},
				request: watchRequest{question: question{Representation: plainJSON}, bookmarks: true},
				direct:  tt.direct,
				proxy:   tt.proxy,
				track:   &track{from: from, state: map[string][]byte{"n/a": []byte("a at 9")}, stream: tt.track},
				expected: oracle.Watch{
					Begins: oracle.FromRevision, Bookmarks: true, Revision: from, From: from, MinRevision: from, MaxRevision: upTo, UpTo: upTo,
				},
			}
			var got difference
			if found := p.compareEvents(); found != nil {
				got = *found
			}
			if got.Kind != tt.wantKind {
				t.Errorf("got a difference of the kind %q (%s), want %q", got.Kind, got.Detail, tt.wantKind)
			}
		})
	}
}
