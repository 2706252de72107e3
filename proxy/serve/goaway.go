package serve

import (
	"math/rand/v2"
	"net/http"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// CloseWhileDraining returns a handler that answers like next. While isDraining returns true, each answer makes its client
// close the connection, so that the client sends no request on a connection that is about to be closed. An answer to an
// upgrade does not, since it needs the Connection header itself. Over HTTP/2 net/http sends a GOAWAY in place of the header,
// and requests in flight still finish.
func CloseWhileDraining(next http.Handler, isDraining func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isDraining() && kubehttp.RequestOf(r).Upgrade == "" {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// SpreadByGoaway returns a handler that answers like next. For each request over HTTP/2, chance is the probability (0 to 1)
// that net/http sends a GOAWAY. The client then opens another connection, which may lead to another replica, and requests in
// flight still finish. kube-apiserver's WithProbabilisticGoaway does the same, but its package imports all of priority and
// fairness.
func SpreadByGoaway(next http.Handler, chance float64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && rand.Float64() < chance { // #nosec G404 -- only spreads clients
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
