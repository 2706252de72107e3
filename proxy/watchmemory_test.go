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

// hubOf has the creation of an object of about that size, at revision 2.
func hubOf(size int) *watch.Broadcaster {
	span := watch.Span{From: 1, To: 2}
	state := index.NewTree(false)
	span.Versions.Append(index.Version{Revision: 1, Tree: state.Clone()})
	o := index.NewObject(0, "a", 2, []byte(`{"metadata":{"name":"a"},"data":"`+strings.Repeat("x", size)+`"}`))
	span.Versions.Append(index.Version{Revision: 2, Tree: state.Clone(), Change: index.Change{After: o}})
	return watch.NewBroadcaster(watch.Form{Envelope: samples.Envelope("PodList", "v1")}, span, &watch.Counts{}, &watch.Pacer{})
}

// hubStream is a watch of all that a broadcaster has, while stands says that the resource is defined as before.
func hubStream(broadcaster *watch.Broadcaster, stands func() bool, w http.ResponseWriter, r *http.Request) *watchStream {
	s := &watchStream{handler: &Handler{}, request: r, control: http.NewResponseController(w), form: broadcaster.Form(), end: watch.EndGone}
	s.ResponseWriter = w
	s.watcher = broadcaster.Watch(watch.Options{After: 1, Timeout: time.Hour, Defined: stands})
	return s
}

// TestLargeEventsAreNotCopied: what is being written to a client is the object's own bytes, in the state that a
// watch begins with and after it, with gzip and without. Many clients may be told of the same large object and not
// read it.
func TestLargeEventsAreNotCopied(t *testing.T) {
	const size = 1 << 20
	state := []*index.Object{index.NewObject(0, "a", 1, []byte(`{"data":"`+strings.Repeat("y", size)+`"}`))}
	for name, tt := range map[string]struct {
		compressed bool
		tell       func(*watchStream)
	}{
		"the state": {false, func(s *watchStream) {
			s.state = &body{objects: state, size: size}
			s.writeInitial()
		}},
		"an event":            {false, func(s *watchStream) { s.writeNext() }},
		"an event, with gzip": {true, func(s *watchStream) { s.writeNext() }},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			s := hubStream(hubOf(size), func() bool { return true }, discard{http.Header{}}, r)
			s.compressed = tt.compressed
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			tt.tell(s)
			runtime.ReadMemStats(&after)
			s.watcher.Close(watch.EndGone)
			if took := after.TotalAlloc - before.TotalAlloc; took > size/2 || s.Bytes < size {
				t.Errorf("%d bytes are written, and %d are allocated for that", s.Bytes, took)
			}
		})
	}
}
