package differential

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/oracle"
)

// streamOf is one that has said something, and maybe ended.
func streamOf(ended bool, err error, said ...oracle.Event) *stream {
	s := &stream{cancel: func() {}, read: make(chan struct{}), events: said, ended: ended, err: err}
	close(s.read)
	return s
}

// TestLook: each falsehood that listproxy's stream can tell is seen, and what kube-apiserver's own says
// wrong is taken for a mistake here. (Which events are false is the oracle's to say, and tested there.)
func TestLook(t *testing.T) {
	said := func(kind watch.EventType, revision uint64, text string) oracle.Event {
		return oracle.Event{Type: kind, Key: "n/a", Revision: revision, Object: fmt.Appendf(nil, text, revision)}
	}
	change, bookmark := said(watch.Modified, 12, "a at %d"), said(watch.Bookmark, 13, "mark at %d")
	gone, other := said(watch.Error, 0, "expired (%d)"), said(watch.Error, 0, "no (%d)")
	goneToo := said(watch.Error, 7, "expired (%d)") // which names another revision
	right := []oracle.Event{change, bookmark}
	for name, tt := range map[string]struct {
		served, proxied, truth *stream
		want                   kind
	}{
		"the same":             {served: streamOf(false, nil, right...), proxied: streamOf(false, nil, right...)},
		"without the bookmark": {served: streamOf(false, nil, right...), proxied: streamOf(false, nil, change)},
		"a change is missing":  {served: streamOf(false, nil, right...), proxied: streamOf(false, nil), want: wrongEvents},
		"other bytes": {
			served: streamOf(false, nil, change), proxied: streamOf(false, nil, said(watch.Modified, 12, "A at %d")),
			want: wrongEvents,
		},
		"kube-apiserver's is wrong": {served: streamOf(false, nil), proxied: streamOf(false, nil, change), want: wrongReference},
		"a bookmark in other bytes": {
			served:  streamOf(false, nil, right...),
			proxied: streamOf(false, nil, change, said(watch.Bookmark, 14, "Mark at %d")), want: wrongBookmark,
		},
		"it ended":                     {served: streamOf(false, nil, change), proxied: streamOf(true, nil, change), want: wrongEnd},
		"kube-apiserver's ended":       {served: streamOf(true, nil, change), proxied: streamOf(false, nil, change), want: wrongEnd},
		"both ended":                   {served: streamOf(true, nil, change), proxied: streamOf(true, nil, change)},
		"it was cut":                   {served: streamOf(false, nil, change), proxied: streamOf(true, errors.New("cut"), change), want: wrongEnd},
		"it was refused":               {served: streamOf(false, nil, change), proxied: streamOf(true, nil, gone), want: wrongRefusal},
		"kube-apiserver's was refused": {served: streamOf(true, nil, gone), proxied: streamOf(false, nil), want: wrongRefusal},
		"both were refused":            {served: streamOf(true, nil, goneToo), proxied: streamOf(true, nil, gone)},
		"refused with other words":     {served: streamOf(true, nil, gone), proxied: streamOf(true, nil, other), want: wrongRefusal},
		"nobody knows what is true": {
			served: streamOf(false, nil, change), proxied: streamOf(false, nil, change), truth: streamOf(true, nil, change),
			want: elsewhere,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.truth == nil {
				tt.truth = streamOf(false, nil, change)
			}
			p := &watchPair{
				comparator: &comparator{report: newReport()}, watchRequest: watchRequest{question: question{Representation: plainJSON}, bookmarks: true},
				served: tt.served, proxied: tt.proxied, truth: &track{from: 10, state: map[string][]byte{"n/a": []byte("a at 9")}, stream: tt.truth},
				wants: oracle.Watch{Begins: oracle.FromRevision, Bookmarks: true, Revision: 10, From: 10, Least: 10, Most: 12, UpTo: 12},
			}
			if d := p.look(); d.kind() != tt.want {
				t.Errorf("%v, want %q", d, tt.want)
			}
		})
	}
}
