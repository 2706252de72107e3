package serve

import (
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
