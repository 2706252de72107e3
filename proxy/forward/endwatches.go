package forward

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

// lateWatch is the longest time for which a watch lasts that begins while the others are being ended.
const lateWatch = time.Second

var errWatchEnded = errors.New("the watch was ended, because listproxy ends")

// EndWatches ends the forwarded watches, and soon also those that begin from now on. Each ends as
// kube-apiserver ends its own at a shutdown (WatchServer.HandleHTTP in
// k8s.io/apiserver/pkg/endpoints/handlers): in order, with the end of the body, and between two
// events. The clients open them again elsewhere, from the last event.
//
// The ends are spread in time, in no order, so that the clients do not all come back at once. For a number of
// watches, pace returns the time after which the first may end, and the time over which the ends are spread.
// EndWatches does not wait for them. A second call does nothing.
//
// A watch in the middle of an event ends after that event, and a compressed one after a gzip member:
// kube-apiserver sends its events in whole members. In media types other than JSON and protobuf
// listproxy cannot tell where an event ends, so such a watch is cut. A watch whose members never end is
// cut when the process ends. A watch without an answer yet gets a 503 with Retry-After.
func (f *Forwarder) EndWatches(pace func(watches int) (after, within time.Duration)) {
	f.watches.end(pace)
}

// openWatches are the forwarded watches that are open. The zero value is ready for use.
type openWatches struct {
	mu     sync.Mutex
	known  map[*openWatch]struct{}
	ending bool
}

// open adds a watch, which must be closed. cancel ends its request to the upstream.
func (o *openWatches) open(cancel context.CancelFunc) *openWatch {
	w := &openWatch{cancel: cancel}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ending {
		time.AfterFunc(rand.N(lateWatch), w.end)
		return w
	}
	if o.known == nil {
		o.known = map[*openWatch]struct{}{}
	}
	o.known[w] = struct{}{}
	return w
}

// close removes a watch that is over.
func (o *openWatches) close(w *openWatch) {
	w.cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.known, w)
}

func (o *openWatches) end(pace func(watches int) (after, within time.Duration)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = true
	if len(o.known) > 0 {
		after, within := pace(len(o.known))
		for w := range o.known {
			time.AfterFunc(after+rand.N(within), w.end)
		}
	}
	o.known = nil
}

// openWatch is a forwarded watch, and the body of its answer.
type openWatch struct {
	cancel context.CancelFunc // ends the request to the upstream
	body   io.ReadCloser      // the answer's; nil if there is none yet

	mu      sync.Mutex
	events  kubehttp.EventFraming // of the bytes that were passed on
	refused bool                  // the answer is no stream of events, and ends by itself
	ending  bool                  // the watch ends after the current event
	over    bool                  // nothing more is passed on
}

// end ends the watch after the current event. It ends it at once if there is no such event, or if nobody can tell.
func (w *openWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending = true
	framed := w.events.Known() || w.events.Compressed()
	if !w.refused && (w.body == nil || !framed || w.events.Between()) {
		w.endLocked()
	}
}

func (w *openWatch) endLocked() {
	w.over = true
	w.cancel() // this ends a Read that waits, too
}

// answered takes over the body of an answer that is a stream of events. Any other answer is a
// refusal, and ends by itself.
func (w *openWatch) answered(res *http.Response) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case res.StatusCode == http.StatusOK && res.ContentLength < 0:
		w.body, w.events = res.Body, kubehttp.FramingOf(res.Header)
		res.Body = w
	case w.over:
		return errWatchEnded // the request was canceled, so the body may not come
	default:
		w.refused = true
	}
	return nil
}

// Read implements io.Reader. A watch that was ended ends as if the API server had ended it.
func (w *openWatch) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return 0, io.EOF // the client gets these events with its next watch
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

// Close implements io.Closer.
func (w *openWatch) Close() error { return w.body.Close() }
