package proxy

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// stallBody is a request's body of which something must come within limit whenever it is read. A
// request is in flight until it is answered, and not every answer comes before the body: whom
// kube-apiserver does not know it tells so at once over HTTP/2, but over HTTP/1.1, which is all that
// a load balancer before it may speak, only when it has the rest. So a caller without any rights
// could else keep a request in flight for ever.
//
// It is read by one goroutine at a time, which may be one that outlives the handler.
type stallBody struct {
	io.ReadCloser
	limit time.Duration // 0: none

	mu      sync.Mutex
	control *http.ResponseController // nil once the handler has returned
}

// guardUpload bounds how long the body of r may stall, if it has one. The handler must call end
// before it returns.
func guardUpload(w http.ResponseWriter, r *http.Request, limit time.Duration) (end func()) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return func() {}
	}
	b := &stallBody{ReadCloser: r.Body, control: http.NewResponseController(w), limit: limit}
	r.Body = b
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.control = nil
	}
}

// setDeadline bounds the reads of the connection or stream, unless they are the server's own
// again. It cannot fail for a server's ResponseWriter, but for one whose connection is gone.
func (b *stallBody) setDeadline(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.control != nil {
		_ = b.control.SetReadDeadline(at)
	}
}

// letUploadStall takes the bound of guardUpload away, for streams of callers who are known. Nothing
// of the body has been read.
func letUploadStall(r *http.Request) {
	if body, ok := r.Body.(*stallBody); ok {
		body.limit = 0
	}
}

// Read implements io.Reader.
func (b *stallBody) Read(p []byte) (int, error) {
	if b.limit == 0 {
		return b.ReadCloser.Read(p)
	}
	b.setDeadline(time.Now().Add(b.limit))
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		// From here on the server reads to notice that the client goes.
		b.setDeadline(time.Time{})
	}
	return n, err
}
