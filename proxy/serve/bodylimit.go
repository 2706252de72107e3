package serve

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// BodyTime is how long the body of a short request may take. kube-apiserver gives such a request as
// long in all (--request-timeout).
const BodyTime = time.Minute

// LimitBodies returns next with a bound on the time that request bodies take. Long-running requests have
// none, since they send a stream and no object. How long a body may be, the API server says (413).
func LimitBodies(next http.Handler, within time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody || kubehttp.Of(r).LongRunning {
			next.ServeHTTP(w, r)
			return
		}
		body := &timedBody{ReadCloser: r.Body, control: http.NewResponseController(w)}
		_ = body.control.SetReadDeadline(time.Now().Add(within)) // fails only if the connection is gone
		defer body.handled()
		r.Body = body
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
