package server

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// BodyTime is how long the body of a short request may take. kube-apiserver gives such a request as
// long in all (--request-timeout).
const BodyTime = time.Minute

// LimitBodies returns next with bounds on request bodies, in bytes and in time. 0 is none; long-running
// requests have none either, since they send a stream and no object.
//
// A request that says that its body is longer gets 413, in the words of kube-apiserver, whose own
// bound is 3 MiB (MaxRequestBodyBytes; aggregated API servers may have others). A body of unknown
// length is cut off at the bound: reading it then fails with an [http.MaxBytesError], and the
// forwarder answers with the same 413.
func LimitBodies(next http.Handler, limit int64, within time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Body == nil || r.Body == http.NoBody || kubehttp.Of(r).LongRunning:
			next.ServeHTTP(w, r)
			return
		case limit > 0 && r.ContentLength > limit:
			observe.RecordOf(r.Context()).Refused(observe.RefusedBody)
			kubehttp.WriteBodyTooLarge(w, r, limit)
			return
		case limit > 0 && r.ContentLength < 0: // a known length cannot be exceeded
			r.Body = http.MaxBytesReader(w, r.Body, limit)
		}
		if within > 0 {
			body := &timedBody{ReadCloser: r.Body, control: http.NewResponseController(w)}
			_ = body.control.SetReadDeadline(time.Now().Add(within)) // fails only if the connection is gone
			defer body.handled()
			r.Body = body
		}
		next.ServeHTTP(w, r)
	})
}

// timedBody is a body whose connection or stream has a read deadline. It is read by one goroutine at a
// time, which may be one that outlives the handler.
type timedBody struct {
	io.ReadCloser

	mu      sync.Mutex
	control *http.ResponseController // nil once the handler has returned: nothing of its own may be used then
}

// handled is called when the handler returns.
func (b *timedBody) handled() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.control = nil
}

// Read implements [io.Reader]. At the end of the body it lifts the deadline: from here on the server
// reads to notice that the client goes.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.control != nil {
			_ = b.control.SetReadDeadline(time.Time{})
		}
	}
	return n, err
}
