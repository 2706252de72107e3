package serve

import (
	"math/rand/v2"
	"net/http"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// CloseWhileDraining returns a handler that answers like next. While draining reports true, each answer makes its
// client close the connection, so that it sends no request on one that is about to be closed. Over HTTP/2 net/http
// sends a GOAWAY instead of the header, and requests in flight still finish.
func CloseWhileDraining(next http.Handler, draining func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if draining() && kubehttp.RequestOf(r).Upgrade == "" {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Goaway returns a handler that answers like next. After a share of the requests over HTTP/2, from 0 to 1, net/http
// sends a GOAWAY for the header: the client opens another connection, and requests in flight still finish. It is
// kube-apiserver's WithProbabilisticGoaway, whose package would bring all of priority and fairness.
func Goaway(next http.Handler, chance float64) http.Handler {
	if chance == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && rand.Float64() < chance { // #nosec G404 -- only spreads clients
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
