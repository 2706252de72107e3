package server

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// stallBody is the body of a request. Whenever it is read, something must come within limit.
// Otherwise a caller without any rights could keep a request in flight for ever: a request is in
// flight until it is answered, and the answer can wait for the body. Over HTTP/2 kube-apiserver
// refuses an unknown caller at once, but over HTTP/1.1 (a load balancer in front of it may speak
// nothing else) only when it has the whole body.
//
// If the upstream has not accepted the caller, the whole body must come within limit; otherwise a
// byte now and then would keep the request in flight for ever. kube-apiserver gives its own short
// requests a minute, too. [LimitBodies] bounds how much can come in that time.
//
// It is read by one goroutine at a time, which may be one that outlives the handler.
type stallBody struct {
	io.ReadCloser

	mu      sync.Mutex
	limit   time.Duration // of what is read at once; 0: none
	until   time.Time     // by when the whole must have come; zero: whenever
	reading bool
	control *http.ResponseController // nil once the handler has returned
}

type stallBodyKey struct{}

// guardUpload bounds how long the body of r may take, if it has one. It returns the request to use
// from then on; [CallerKnown] finds the bound in its context. The handler must call end before it
// returns.
func guardUpload(w http.ResponseWriter, r *http.Request, limit time.Duration) (guarded *http.Request, end func()) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return r, func() {}
	}
	b := &stallBody{ReadCloser: r.Body, control: http.NewResponseController(w), limit: limit, until: time.Now().Add(limit)}
	r = r.WithContext(context.WithValue(r.Context(), stallBodyKey{}, b))
	r.Body = b
	return r, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.control = nil
	}
}

// CallerKnown lifts the bound on how long the body of ctx's request may take as a whole, because its
// sender is known now. If the request is a long-running one (long), its body is a stream and may also
// stall. CallerKnown may be called while the body is read.
func CallerKnown(ctx context.Context, long bool) {
	b, ok := ctx.Value(stallBodyKey{}).(*stallBody)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = time.Time{}
	if long {
		b.limit = 0
	}
	var deadline time.Time
	if b.reading {
		deadline = b.deadlineLocked()
	}
	b.setDeadlineLocked(deadline)
}

// deadlineLocked returns the time by which something must come; zero is no deadline.
func (b *stallBody) deadlineLocked() time.Time {
	if b.limit == 0 {
		return time.Time{}
	}
	at := time.Now().Add(b.limit)
	if !b.until.IsZero() && b.until.Before(at) {
		return b.until
	}
	return at
}

// setDeadlineLocked bounds the reads of the connection or stream, unless the server itself reads
// from it again. For a server's ResponseWriter it fails only if the connection is gone.
func (b *stallBody) setDeadlineLocked(at time.Time) {
	if b.control != nil {
		_ = b.control.SetReadDeadline(at)
	}
}

// Read implements io.Reader.
func (b *stallBody) Read(p []byte) (int, error) {
	b.begin()
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	if err == io.EOF {
		// From here on the server reads to notice that the client goes.
		b.setDeadlineLocked(time.Time{})
	}
	return n, err
}

func (b *stallBody) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = true
	b.setDeadlineLocked(b.deadlineLocked())
}
