package serve

import (
	"net/http"
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
		if r.Body != nil && r.Body != http.NoBody && !kubehttp.Of(r).LongRunning {
			// It fails only if the connection is gone. At the end of the body net/http lifts it, since from there on
			// it reads to notice that the client goes (connReader.startBackgroundRead); over HTTP/2 it is the body's alone.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within))
		}
		next.ServeHTTP(w, r)
	})
}
