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
	s := &stream{cancel: func() {}, read: make(chan struct{}), events: received, ended: ended, err: err}
	close(s.read)
	return s
}

// open returns a stream that goes on after these events.
func open(received ...oracle.Event) *stream { return streamOf(false, nil, received...) }

// closed returns a stream that has ended in order after these events.
func closed(received ...oracle.Event) *stream { return streamOf(true, nil, received...) }

// TestLook: watchPair.look finds each kind of difference between two streams, and takes a mistake in kube-apiserver's own
// stream for a mistake of this package. (Package oracle tests which events are wrong.)
func TestLook(t *testing.T) {
	// newEvent returns an event whose object is text, with the revision in it.
	newEvent := func(eventType watch.EventType, revision uint64, text string) oracle.Event {
		return oracle.Event{Type: eventType, Key: "n/a", Revision: revision, Object: fmt.Appendf(nil, text, revision)}
	}
	change, bookmark := newEvent(watch.Modified, 12, "a at %d"), newEvent(watch.Bookmark, 13, "mark at %d")
	gone, other := newEvent(watch.Error, 0, "expired (%d)"), newEvent(watch.Error, 0, "no (%d)")
	goneLater := newEvent(watch.Error, 7, "expired (%d)")
	right := []oracle.Event{change, bookmark}
	for name, tt := range map[string]struct {
		served, proxied, truth *stream
		want                   differenceKind // "": no difference
	}{
		"equal streams":              {served: open(right...), proxied: open(right...)},
		"no bookmark in listproxy's": {served: open(right...), proxied: open(change)},
		"a missing change":           {served: open(right...), proxied: open(), want: wrongEvents},
		"a change with other bytes": {
			served: open(change), proxied: open(newEvent(watch.Modified, 12, "A at %d")),
			want: wrongEvents,
		},
		"a missing change in kube-apiserver's": {served: open(), proxied: open(change), want: wrongReference},
		"a bookmark with other bytes": {
			served:  open(right...),
			proxied: open(change, newEvent(watch.Bookmark, 14, "Mark at %d")), want: wrongBookmark,
		},
		"only listproxy's ended":               {served: open(change), proxied: closed(change), want: wrongEnd},
		"only kube-apiserver's ended":          {served: closed(change), proxied: open(change), want: wrongEnd},
		"both ended":                           {served: closed(change), proxied: closed(change)},
		"listproxy's broke off":                {served: open(change), proxied: streamOf(true, errors.New("cut"), change), want: wrongEnd},
		"an ERROR from listproxy only":         {served: open(change), proxied: closed(gone), want: wrongRefusal},
		"an ERROR from kube-apiserver only":    {served: closed(gone), proxied: open(), want: wrongRefusal},
		"the same ERROR, but for the revision": {served: closed(goneLater), proxied: closed(gone)},
		"an ERROR with another message":        {served: closed(gone), proxied: closed(other), want: wrongRefusal},
		"the track has ended": {
			served: open(change), proxied: open(change), truth: closed(change),
			want: elsewhere,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.truth == nil {
				tt.truth = open(change)
			}
			p := &watchPair{
				comparator: &comparator{report: newReport()}, watchRequest: watchRequest{question: question{Representation: plainJSON}, bookmarks: true},
				served: tt.served, proxied: tt.proxied, truth: &track{from: 10, state: map[string][]byte{"n/a": []byte("a at 9")}, stream: tt.truth},
				wants: oracle.Watch{Begins: oracle.FromRevision, Bookmarks: true, Revision: 10, From: 10, MinRevision: 10, MaxRevision: 12, UpTo: 12},
			}
			if d := p.look(); d.kind() != tt.want {
				t.Errorf("got %v, want the kind %q", d, tt.want)
			}
		})
	}
}
