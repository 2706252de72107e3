package forward

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// maxLateWatch is the longest time for which a watch lasts if it begins after EndWatches was called.
const maxLateWatch = time.Second

// errStopped is the failure of a watch that was stopped before the API server answered it.
var errStopped = errors.New("the watch was ended: listproxy is shutting down")

// EndWatches begins to end the forwarded watches that are open, and returns. A watch that begins later ends within a second
// of its start. A second call does nothing.
//
// A watch ends as kube-apiserver ends its own at a shutdown (WatchServer.HandleHTTP in
// k8s.io/apiserver/pkg/endpoints/handlers): after a whole event, with a regular end of the body. The client then opens
// the watch again elsewhere, from its last event.
//
// The ends are spread at random over time, so that the clients do not all come back at once. pace is called with the
// number of open watches, if there are any. It returns the delay before the first end, and the time over which the ends
// are spread, which must be more than 0.
//
// Some watches end in another way:
//   - A compressed watch ends after a gzip member, which kube-apiserver always ends after an event. If the member does not
//     end, the watch lasts until the process ends.
//   - A watch in another media type than JSON and protobuf ends at once, possibly within an event, since the ends of its
//     events cannot be found.
//   - A watch without an answer yet gets a 503 with Retry-After.
func (f *Forwarder) EndWatches(pace func(watches int) (delay, spread time.Duration)) {
	f.watches.endAll(pace)
}

// watchSet holds the forwarded watches that are open. The zero value is ready for use.
type watchSet struct {
	mu      sync.Mutex
	watches map[*forwardedWatch]struct{} // nil before the first watch, and after endAll, which has set a timer for each
	ending  bool                         // endAll was called
}

// add returns a new watch, which must be finished. cancel ends the watch's request to the API server.
func (s *watchSet) add(cancel context.CancelFunc) *forwardedWatch {
	w := &forwardedWatch{cancel: cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		time.AfterFunc(rand.N(maxLateWatch), w.endAfterEvent)
		return w
	}
	if s.watches == nil {
		s.watches = map[*forwardedWatch]struct{}{}
	}
	s.watches[w] = struct{}{}
	return w
}

// finish ends the watch's request to the API server, and forgets the watch.
func (s *watchSet) finish(w *forwardedWatch) {
	w.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, w)
}

// endAll does the work of [Forwarder.EndWatches].
func (s *watchSet) endAll(pace func(watches int) (delay, spread time.Duration)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	if len(s.watches) > 0 {
		delay, spread := pace(len(s.watches))
		for w := range s.watches {
			time.AfterFunc(delay+rand.N(spread), w.endAfterEvent)
		}
	}
	s.watches = nil
}

// forwardedWatch is a forwarded watch, and the body of its answer. A watch that must end stops after the current event.
type forwardedWatch struct {
	cancel context.CancelFunc // ends the request to the API server
	body   io.ReadCloser      // the body from the API server; nil before its answer

	mu           sync.Mutex
	events       endFinder // finds the ends of events in the bytes that were passed on
	notEvents    bool      // the answer is not a stream of events, and ends by itself
	endRequested bool      // endAfterEvent was called
	stopped      bool      // nothing more is passed on to the client
}

// endAfterEvent stops the watch at once, unless the client has got only a part of an event: then Read stops it at the end of the
// event. If the ends of events cannot be found, it stops at once, too. It does nothing to an answer that is not a stream of events.
func (w *forwardedWatch) endAfterEvent() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endRequested = true
	if !w.notEvents && !w.events.inside {
		w.stopLocked()
	}
}

// stopLocked ends the request to the API server. Nothing more is passed on to the client.
func (w *forwardedWatch) stopLocked() {
	w.stopped = true
	w.cancel() // ends a Read that waits, too
}

// setResponse takes the API server's answer:
//
//   - If res is a stream of events, w becomes its body. If the watch was stopped before, that is an empty stream.
//   - Any other answer keeps its body. If the watch was stopped before, its request was canceled, so the body may be incomplete,
//     and setResponse returns errStopped.
func (w *forwardedWatch) setResponse(res *http.Response) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case res.StatusCode == http.StatusOK && res.ContentLength < 0:
		w.body = res.Body
		w.events = newEndFinder(res.Header)
		res.Body = w
	case w.stopped:
		return errStopped
	default:
		w.notEvents = true
	}
	return nil
}

// Read implements [io.Reader]. A watch that was stopped looks as if the API server had ended it.
func (w *forwardedWatch) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return 0, io.EOF // the client gets these events with its next watch
	}
	for passed := 0; passed < n; {
		length, ended := w.events.next(p[passed:n])
		passed += length
		if ended && w.endRequested {
			w.stopLocked()
			return passed, io.EOF // the client gets the rest with its next watch
		}
	}
	return n, err
}

// Close implements [io.Closer].
func (w *forwardedWatch) Close() error { return w.body.Close() }
