package serve

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// OnlyPaths returns a handler that passes requests for a path on to next, and refuses all others:
//   - It answers CONNECT with 405, since tunnels have a port of their own (see [NewConnectServer]).
//   - It answers a request for a whole URL, as to an HTTP proxy, or for *, with 400. (net/http itself answers OPTIONS *, as at
//     kube-apiserver.)
func OnlyPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect:
			w.Header().Set("Connection", "close") // what follows a CONNECT is not HTTP
			observe.RecordOf(r.Context()).SetRefused(observe.RefusedConnect)
			kubehttp.WriteStatus(w, r, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
				"listproxy does not open tunnels here: use this address as the server in your kubeconfig, "+
					"and that of --connect-port as proxy-url.")
		case !strings.HasPrefix(r.RequestURI, "/"):
			refuseBadRequest(w, r, observe.RefusedTarget,
				"listproxy forwards to one API server only: ask for a path, not for a whole URL or *.")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// refuseBadRequest answers a request with a 400 and a message, and records why it is refused. why is one of observe's
// Refused constants.
func refuseBadRequest(w http.ResponseWriter, r *http.Request, why, message string) {
	observe.RecordOf(r.Context()).SetRefused(why)
	kubehttp.WriteStatus(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, message)
}
