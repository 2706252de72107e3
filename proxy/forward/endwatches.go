package forward

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// errStopped is the failure of a watch that was stopped before the API server answered it.
var errStopped = errors.New("the watch was ended: listproxy is shutting down")

// EndWatches begins to end the forwarded watches, and returns. Each watch that is open ends within spread. A watch that begins
// later ends within spread of its start. The ends are at random times, so that the clients do not all come back at once.
// EndWatches must not be called twice.
//
// A watch ends as kube-apiserver ends its own at a shutdown (WatchServer.HandleHTTP in
// k8s.io/apiserver/pkg/endpoints/handlers): after a whole event, with a regular end of the body. The client then opens
// the watch again elsewhere, from its last event.
//
// Some watches end in another way:
//   - A compressed watch ends after a gzip member, which kube-apiserver always ends after an event. If the member does not
//     end, the watch lasts until the process ends.
//   - A watch in another media type than JSON and protobuf ends at once, possibly within an event, since the ends of its
//     events cannot be found.
//   - A watch without an answer yet gets a 503 with Retry-After.
func (f *Forwarder) EndWatches(spread time.Duration) {
	f.endSpread = max(spread, 1) // rand.N takes no 0
	f.beginEnding()
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
