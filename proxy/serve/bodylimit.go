package serve

import (
	"net/http"
	"time"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// BodyTime is the time that the body of a short request may take. kube-apiserver gives the same time to the whole
// request (--request-timeout).
const BodyTime = time.Minute

// LimitBodies returns a handler that bounds the time in which the body of a short request must come. The bodies of
// long-running requests are streams without a bound. (The API server itself bounds the size of bodies, with 413.)
func LimitBodies(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody && !kubehttp.RequestOf(r).LongRunning {
			// An error means that the connection is gone. Over HTTP/1.1 net/http lifts the deadline at the end of the
			// body, when it begins to watch for a client that leaves (connReader.startBackgroundRead). Over HTTP/2 the
			// deadline is for the body alone.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout))
		}
		next.ServeHTTP(w, r)
	})
}
