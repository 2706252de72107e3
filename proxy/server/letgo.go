package server

import (
	"net/http"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// LetGo returns next, which while draining says so lets its clients' connections go, one with each answer: over
// HTTP/1.1 by Connection: close, over HTTP/2 by a GOAWAY, which net/http makes of it and which lets what is under way
// end. So nobody sends a request on a connection that is about to be closed.
func LetGo(next http.Handler, draining func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if draining() && kubehttp.Of(r).Upgrade == "" {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
