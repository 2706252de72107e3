package proxy

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// hubOf has the creation of an object of about that size, at revision 2.
func hubOf(size int) *watch.Hub {
	span := watch.Span{From: 1, To: 2}
	state := index.NewTree(false)
	span.Versions.Append(index.Version{Revision: 1, Tree: state.Clone()})
	o := index.NewObject(0, "a", 2, []byte(`{"metadata":{"name":"a"},"data":"`+strings.Repeat("x", size)+`"}`))
	span.Versions.Append(index.Version{Revision: 2, Tree: state.Clone(), Change: index.Change{After: o}})
	return watch.NewHub(watch.Form{Frame: wire.FixedFrame("PodList", "v1")}, span, &watch.Counts{}, &watch.Pacer{})
}

// hubStream is a watch of all that a hub has, while stands says that the resource is defined as before.
func hubStream(hub *watch.Hub, stands func() bool, w http.ResponseWriter, r *http.Request) *watchStream {
	s := &watchStream{handler: &Handler{}, request: r, control: http.NewResponseController(w), form: hub.Form(), end: watch.EndGone}
	s.ResponseWriter = w
	s.cursor = hub.Watch(watch.Options{After: 1, Timeout: time.Hour, Defined: stands})
	return s
}

// unread is a client that does not read, from the first large write on, until it may.
type unread struct {
	http.ResponseWriter
	once    sync.Once
	waiting *sync.WaitGroup
	read    chan struct{}
}

// Write implements http.ResponseWriter.
func (u *unread) Write(p []byte) (int, error) {
	if len(p) > 32<<10 {
		u.once.Do(u.waiting.Done)
		<-u.read
	}
	return len(p), nil
}

// TestLargeEventsAreNotCopied: many clients are told of the same large object and do not read it.
// What is being written to them is the object's own bytes, in the state that a watch begins with
// and after it, with gzip and without.
func TestLargeEventsAreNotCopied(t *testing.T) {
	const size, clients = 1 << 20, 50
	state := []*index.Object{index.NewObject(0, "a", 1, []byte(`{"data":"`+strings.Repeat("y", size)+`"}`))}
	for name, tt := range map[string]struct {
		compressed bool
		tell       func(*watchStream)
	}{
		"the state": {false, func(s *watchStream) {
			s.page = &body{objects: state, size: size}
			s.writeInitial()
		}},
		"an event":            {false, func(s *watchStream) { s.tellNext() }},
		"an event, with gzip": {true, func(s *watchStream) { s.tellNext() }},
	} {
		t.Run(name, func(t *testing.T) {
			hub := hubOf(size)
			var waiting, telling sync.WaitGroup
			read := make(chan struct{})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range clients {
				waiting.Add(1)
				out := &unread{ResponseWriter: httptest.NewRecorder(), waiting: &waiting, read: read}
				s := hubStream(hub, func() bool { return true }, out, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
				s.compressed = tt.compressed
				telling.Go(func() {
					tt.tell(s)
					s.cursor.Close(watch.EndGone)
				})
			}
			waiting.Wait()
			runtime.ReadMemStats(&after)
			close(read)
			telling.Wait()
			if took := after.TotalAlloc - before.TotalAlloc; took > clients*size/2 {
				t.Errorf("%d clients that do not read %d bytes each hold %d bytes", clients, size, took)
			}
		})
	}
}
