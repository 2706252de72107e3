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

// errStopped is the failure of a watch that was stopped before the API server answered it.
var errStopped = errors.New("the watch was ended: listproxy is shutting down")

// EndWatches begins to end the forwarded watches, and returns at once. With a spread of 10 s, each watch that is open now ends
// at a random time in the next 10 s. A watch that begins later ends at a random time in its first 10 s. So the clients do not
// all come back at once. EndWatches must not be called twice.
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
	f.beginShutdown()
}

// endAtShutdown makes w end at a random time: within endSpread after the call of EndWatches, or within endSpread from now if
// EndWatches was called already. The caller must call stop when w is over, and can ignore its result.
func (f *Forwarder) endAtShutdown(w *forwardedWatch) (stop func() bool) {
	return context.AfterFunc(f.shutdown, func() {
		delay := rand.N(f.endSpread)
		time.AfterFunc(delay, w.endAfterEvent)
	})
}

// forwardedWatch is a forwarded watch, and the body of its answer. If it must end, it ends between two events.
type forwardedWatch struct {
	cancel context.CancelFunc // ends the request to the API server
	body   io.ReadCloser      // the body from the API server; nil before its answer

	mu           sync.Mutex
	events       endFinder // finds the ends of events in the bytes that were passed on
	endsByItself bool      // the answer is not a stream of events, so endAfterEvent does nothing
	endRequested bool      // endAfterEvent was called
	stopped      bool      // nothing more is passed on to the client
}

// endAfterEvent makes the watch end:
//
//	the client has got a part of an event         Read stops the watch at the end of the event
//	the client has got whole events or nothing    endAfterEvent stops the watch at once
//	the ends of events cannot be found            endAfterEvent stops the watch at once
//	the answer is not a stream of events          the watch goes on, and ends by itself
func (w *forwardedWatch) endAfterEvent() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endRequested = true
	if !w.endsByItself && !w.events.inside {
		w.stopLocked()
	}
}

// stopLocked ends the request to the API server, and with it a Read that waits. Nothing more is passed on to the client.
func (w *forwardedWatch) stopLocked() {
	w.stopped = true
	w.cancel()
}

// setResponse takes the API server's answer:
//
//	a stream of events                  w replaces the body (res.Body), and Read returns io.EOF if the watch was stopped
//	another answer to a stopped watch   setResponse returns errStopped, since the body may be incomplete
//	another answer, such as a 403       the body stays, and the watch ends by itself
func (w *forwardedWatch) setResponse(res *http.Response) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case res.StatusCode == http.StatusOK && res.ContentLength < 0: // a stream of events
		w.body = res.Body
		w.events = newEndFinder(res.Header)
		res.Body = w
	case w.stopped:
		return errStopped
	default:
		w.endsByItself = true
	}
	return nil
}

// Read implements [io.Reader]. To the client, a watch that was stopped looks as if the API server had ended it.
func (w *forwardedWatch) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return 0, io.EOF // the client gets the events in p with its next watch
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
