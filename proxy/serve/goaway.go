package serve

import (
	"math/rand/v2"
	"net/http"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// CloseWhileDraining returns a handler like next. While draining reports true, each answer makes
// its client give up the connection: over HTTP/1.1 with Connection: close; over HTTP/2 net/http
// sends a GOAWAY instead, and requests in progress still finish. So no client sends a request on a
// connection that is about to be closed.
func CloseWhileDraining(next http.Handler, draining func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if draining() && kubehttp.Of(r).Upgrade == "" {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Goaway returns a handler like next. For a part of the requests over HTTP/2, from 0 to 1, the client is
// told to connect again: for the header, net/http sends a GOAWAY, and what is under way goes on. It is
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
