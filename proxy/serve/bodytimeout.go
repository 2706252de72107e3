package serve

import (
	"net/http"
	"time"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// BodyTimeout is the time that the body of a short request may take. kube-apiserver gives the same time to the whole
// request (--request-timeout).
const BodyTimeout = time.Minute

// WithBodyTimeout returns a handler that bounds the time for reading the body of a short request. Outside of tests,
// timeout is [BodyTimeout]. The bodies of long-running requests are streams, and may take any time.
func WithBodyTimeout(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody && !kubehttp.RequestOf(r).LongRunning {
			// The deadline ends with the body, so it need not be lifted. Over HTTP/1.1 net/http lifts it when the body was read
			// (connReader.startBackgroundRead). Over HTTP/2 it is for the body alone.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout)) // fails if the connection is gone
		}
		next.ServeHTTP(w, r)
	})
}
