package proxy

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

const (
	// watchEndsPerSecond is how fast watches are ended at least, when listproxy ends. It is kube-apiserver's
	// (RunWithContext in k8s.io/apiserver/pkg/server/genericapiserver.go).
	watchEndsPerSecond = 200
	// lateWatch is within what time a watch is ended that begins when the others are being ended.
	lateWatch = time.Second
	// quiet is for how long nothing has come of a watch that is unframed, when it is taken to be between two events.
	quiet = 200 * time.Millisecond
)

var errWatchEnded = errors.New("the watch was ended, because listproxy ends")

// EndWatches ends the forwarded watches, and from now on soon those that begin. Each ends as kube-apiserver ends its
// own when it is told to end (WatchServer.HandleHTTP in k8s.io/apiserver/pkg/endpoints/handlers): in order, with
// the end of the body, and between two events. Their clients take them up again elsewhere, from the last event.
//
// So that they do not all come back in one instant, the ends are spread, in no order: 200 a second are ended, and more
// if all would not be within that time otherwise. It does not wait for that, and does nothing a second time.
//
// A watch in the middle of an event ends with that event. In what is compressed, and in media types other than JSON and
// protobuf, listproxy cannot tell where an event ends. Such a watch is cut once the upstream has been silent for 200 ms after all
// that it sent was passed on. That can be within an event that comes with such a pause.
//
// A watch without an answer yet gets the 503 that kube-apiserver has for a watch that comes while it ends, with
// Retry-After.
func (f *Forwarder) EndWatches(within time.Duration) { f.watches.end(within) }

// openWatches are the forwarded watches that are open. The zero value is ready for use.
type openWatches struct {
	mu     sync.Mutex
	known  map[*openWatch]struct{}
	ending bool
}

// open notes a watch; cancel ends its request to the upstream. It must be closed.
func (s *openWatches) open(cancel context.CancelFunc) *openWatch {
	w := &openWatch{cancel: cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		time.AfterFunc(rand.N(lateWatch), w.end)
		return w
	}
	if s.known == nil {
		s.known = map[*openWatch]struct{}{}
	}
	s.known[w] = struct{}{}
	return w
}

// close forgets a watch whose exchange is over.
func (s *openWatches) close(w *openWatch) {
	w.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, w)
}

func (s *openWatches) end(within time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	i, slot := 0, endSlot(len(s.known), within)
	for w := range s.known { // in no order
		time.AfterFunc(time.Duration(i)*slot+rand.N(max(slot, 1)), w.end)
		i++
	}
	s.known = nil
}

// endSlot is the time in which one of n watches ends.
func endSlot(n int, within time.Duration) time.Duration {
	return min(time.Second/watchEndsPerSecond, within/time.Duration(max(n, 1)))
}

// openWatch is a forwarded watch. It is the body of its answer, too.
type openWatch struct {
	cancel context.CancelFunc // of the request to the upstream

	// Of the answer, once there is one.
	body io.ReadCloser

	mu      sync.Mutex
	events  kubehttp.EventFraming // of what was passed on
	reads   int                   // that have begun
	reading bool                  // the last of them waits
	short   bool                  // the answer is no stream
	ending  bool                  // with the event under way
	over    bool                  // nothing more is passed on
}

// end ends the watch, now or with the event under way.
func (w *openWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending = true
	switch {
	case w.short:
	case w.body == nil, w.events.Between():
		w.endLocked()
	default:
		w.endIfQuietLocked()
	}
}

// endIfQuietLocked ends a watch that is unframed, if the Read under way waits for a while longer. That there is one
// says that what came before was passed on.
func (w *openWatch) endIfQuietLocked() {
	if w.events.Known() || !w.reading {
		return
	}
	read := w.reads
	time.AfterFunc(quiet, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.reading && w.reads == read {
			w.endLocked()
		}
	})
}

func (w *openWatch) endLocked() {
	w.over = true
	w.cancel() // and so a Read that waits
}

// ended says whether nothing more is passed on.
func (w *openWatch) ended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// answered takes the body of a stream of events over. Any other answer, a refusal, ends by itself.
func (w *openWatch) answered(res *http.Response) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case res.StatusCode == http.StatusOK && res.ContentLength < 0:
		w.body, w.events = res.Body, kubehttp.FramingOf(res.Header)
		res.Body = w
	case w.over:
		return errWatchEnded // its body may be lost
	default:
		w.short = true
	}
	return nil
}

// Read implements io.Reader. A watch that was ended ends as if the upstream had ended it.
func (w *openWatch) Read(p []byte) (int, error) {
	if !w.beginRead() {
		return 0, io.EOF
	}
	n, err := w.body.Read(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading = false
	if w.over {
		return 0, io.EOF // meanwhile; whoever has not heard of these events will from somebody else
	}
	for passed := 0; passed < n; {
		part, whole := w.events.Next(p[passed:n])
		passed += part
		if whole && w.ending {
			w.endLocked()
			return passed, io.EOF
		}
	}
	return n, err
}

// beginRead says whether there is to be a Read.
func (w *openWatch) beginRead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return false
	}
	w.reads++
	w.reading = true
	if w.ending {
		w.endIfQuietLocked()
	}
	return true
}

// Close implements io.Closer.
func (w *openWatch) Close() error { return w.body.Close() }
