package serve

import (
	"net/http"
	"time"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// BodyTime is the time that the body of a short request may take. kube-apiserver gives such a request as
// long in all (--request-timeout).
const BodyTime = time.Minute

// LimitBodies returns next with a bound on the time that request bodies take. Long-running requests have
// none, since they send a stream and no object. How long a body may be, the API server says (413).
func LimitBodies(next http.Handler, within time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody && !kubehttp.Of(r).LongRunning {
			// Setting the deadline fails only if the connection is gone. Over HTTP/1.1 net/http lifts the deadline at
			// the end of the body, when it begins to look whether the client goes (connReader.startBackgroundRead).
			// Over HTTP/2 the deadline is for the body alone.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within))
		}
		next.ServeHTTP(w, r)
	})
}
