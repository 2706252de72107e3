package serve

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// OnlyPaths returns a handler that passes requests for a path on to next, and refuses everything else that a client can
// ask of an HTTP proxy: CONNECT with 405 ([NewConnect] has a port of its own), and a whole URL, or *, with 400.
// (net/http itself answers OPTIONS *, as at kube-apiserver.)
func OnlyPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect:
			w.Header().Set("Connection", "close") // what follows a CONNECT is not HTTP
			refuse(w, r, observe.RefusedConnect, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
				"listproxy does not open tunnels here: use this address as the server in your kubeconfig, and that of --connect-port as proxy-url.")
		case !strings.HasPrefix(r.RequestURI, "/"):
			refuse(w, r, observe.RefusedTarget, http.StatusBadRequest, metav1.StatusReasonBadRequest,
				"listproxy forwards to one API server only: ask for a path, not for a whole URL.")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// refuse answers a request with a Status, and records the reason.
func refuse(w http.ResponseWriter, r *http.Request, why string, code int, reason metav1.StatusReason, message string) {
	observe.RecordOf(r.Context()).SetRefused(why)
	kubehttp.WriteStatus(w, r, code, reason, message)
}
