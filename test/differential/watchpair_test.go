package differential

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/oracle"
)

// streamOf returns a stream with these events so far, ended or not.
func streamOf(ended bool, err error, received ...oracle.Event) *stream {
	s := &stream{cancel: func() {}, done: make(chan struct{}), events: received, ended: ended, err: err}
	close(s.done)
	return s
}

// open returns a stream that goes on after these events.
func open(received ...oracle.Event) *stream { return streamOf(false, nil, received...) }

// closed returns a stream that has ended in order after these events.
func closed(received ...oracle.Event) *stream { return streamOf(true, nil, received...) }

// TestCompareEvents: watchPair.compareEvents finds each kind of difference between two streams, and takes a mistake in
// kube-apiserver's own stream for a mistake of this package. (Package oracle tests which events are wrong.)
func TestCompareEvents(t *testing.T) {
	// newEvent returns an event whose object is text, with the revision in it.
	newEvent := func(eventType watch.EventType, revision uint64, text string) oracle.Event {
		return oracle.Event{Type: eventType, Key: "n/a", Revision: revision, Object: fmt.Appendf(nil, text, revision)}
	}
	change, bookmark := newEvent(watch.Modified, 12, "a at %d"), newEvent(watch.Bookmark, 13, "mark at %d")
	gone, other := newEvent(watch.Error, 0, "expired (%d)"), newEvent(watch.Error, 0, "no (%d)")
	goneLater := newEvent(watch.Error, 7, "expired (%d)")
	right := []oracle.Event{change, bookmark}
	for name, tt := range map[string]struct {
		served, proxied *stream
		reference       *stream        // of the track; nil: the change, and no end
		wantKind        differenceKind // "": no difference
	}{
		"equal streams":              {served: open(right...), proxied: open(right...)},
		"no bookmark in listproxy's": {served: open(right...), proxied: open(change)},
		"a missing change":           {served: open(right...), proxied: open(), wantKind: wrongEvents},
		"a change with other bytes": {
			served: open(change), proxied: open(newEvent(watch.Modified, 12, "A at %d")),
			wantKind: wrongEvents,
		},
		"a missing change in kube-apiserver's": {served: open(), proxied: open(change), wantKind: wrongReference},
		"a bookmark with other bytes": {
			served:  open(right...),
			proxied: open(change, newEvent(watch.Bookmark, 14, "Mark at %d")), wantKind: wrongBookmark,
		},
		"only listproxy's ended":               {served: open(change), proxied: closed(change), wantKind: wrongEnd},
		"only kube-apiserver's ended":          {served: closed(change), proxied: open(change), wantKind: wrongEnd},
		"both ended":                           {served: closed(change), proxied: closed(change)},
		"listproxy's broke off":                {served: open(change), proxied: streamOf(true, errors.New("cut"), change), wantKind: wrongEnd},
		"an ERROR from listproxy only":         {served: open(change), proxied: closed(gone), wantKind: wrongRefusal},
		"an ERROR from kube-apiserver only":    {served: closed(gone), proxied: open(), wantKind: wrongRefusal},
		"the same ERROR, but for the revision": {served: closed(goneLater), proxied: closed(gone)},
		"an ERROR with another message":        {served: closed(gone), proxied: closed(other), wantKind: wrongRefusal},
		"the track has ended": {
			served: open(change), proxied: open(change), reference: closed(change),
			wantKind: incomparable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.reference == nil {
				tt.reference = open(change)
			}
			const from, upTo = 10, 12
			p := &watchPair{
				c:         &comparator{report: newReport()},
				request:   watchRequest{question: question{Representation: plainJSON}, bookmarks: true},
				served:    tt.served,
				proxied:   tt.proxied,
				reference: &track{from: from, state: map[string][]byte{"n/a": []byte("a at 9")}, stream: tt.reference},
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
