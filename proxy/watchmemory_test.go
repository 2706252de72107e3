package proxy

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/test/samples"
)

// broadcasterWithOneCreation returns a Broadcaster, which sends changes to watches. It has one change: at revision 2, an object
// of about size bytes is created.
func broadcasterWithOneCreation(size int) *watch.Broadcaster {
	const isIndexed = false
	tree := index.NewTree(isIndexed)
	span := watch.Span{From: 1, To: 2} // the revisions that the broadcaster has
	span.Versions.Append(index.Version{Revision: 1, Tree: tree.Clone()})
	o := newObject(2, `{"metadata":{"name":"a"},"data":"`+strings.Repeat("x", size)+`"}`)
	span.Versions.Append(index.Version{Revision: 2, Tree: tree.Clone(), Change: index.Change{After: o}})
	return watch.NewBroadcaster(watch.Form{Envelope: samples.Envelope("PodList", "v1")}, span, &watch.Counts{}, &watch.Pacer{})
}

// newObject returns an object without a number. These tests do not tell its versions apart.
func newObject(revision uint64, text string) *index.Object {
	const noNumber = 0
	return index.NewObject(noNumber, "a", revision, []byte(text))
}

// streamOfEverything returns a watch of everything that a broadcaster has, whose answer goes to w. The watch goes on as long as
// isDefined returns true.
func streamOfEverything(broadcaster *watch.Broadcaster, isDefined func() bool, w http.ResponseWriter, r *http.Request) *watchStream {
	s := &watchStream{handler: &Handler{}, request: r, control: http.NewResponseController(w), form: broadcaster.Form()}
	s.ResponseWriter = w
	const beforeAnyChange = 1 // a revision
	s.watcher = broadcaster.Watch(watch.Options{After: beforeAnyChange, Timeout: time.Hour, IsDefined: isDefined})
	return s
}

// TestLargeEventsAreNotCopied: the state and the events of a watch are written without a copy of a large object, compressed or
// not, since many clients may get the same object and not read it.
func TestLargeEventsAreNotCopied(t *testing.T) {
	const size = 1 << 20
	state := []*index.Object{newObject(1, `{"data":"`+strings.Repeat("y", size)+`"}`)}
	for name, tt := range map[string]struct {
		compressed bool
		write      func(*watchStream)
	}{
		"state": {write: func(s *watchStream) {
			s.initial = &body{objects: state, size: size}
			s.writeInitial()
		}},
		"event":            {write: func(s *watchStream) { s.writeChanges() }},
		"compressed event": {compressed: true, write: func(s *watchStream) { s.writeChanges() }},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			s := streamOfEverything(broadcasterWithOneCreation(size), func() bool { return true }, discard{http.Header{}}, r)
			s.compressed = tt.compressed
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			tt.write(s)
			runtime.ReadMemStats(&after)
			s.watcher.Close(watch.EndGone)
			if s.Bytes < size {
				t.Errorf("got %d bytes written, want at least %d", s.Bytes, size)
			}
			// A copy would allocate at least size bytes. Half of that is for the rest of the process, which is counted, too.
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > size/2 {
				t.Errorf("got %d bytes allocated, want at most %d", allocated, size/2)
			}
		})
	}
}
