package proxy

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// LimitBodies returns next with a bound on request bodies, in bytes. 0 is none; long-running requests
// have none either, since they send a stream and no object.
//
// A request that says that its body is longer gets 413, in the words of kube-apiserver, whose own bound
// is 3 MiB (MaxRequestBodyBytes; aggregated API servers may have others). A body of unknown length is
// cut off at the bound: reading it then fails with an [http.MaxBytesError], and the [Forwarder] answers
// with the same 413.
func LimitBodies(next http.Handler, limit int64) http.Handler {
	if limit <= 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Body == nil || r.Body == http.NoBody || kubehttp.Of(r).LongRunning:
		case r.ContentLength > limit:
			observe.RecordOf(r.Context()).Refused(w.Header(), observe.RefusedBody)
			writeBodyTooLarge(w, r, limit)
			return
		case r.ContentLength < 0: // a known length cannot be exceeded
			r.Body = http.MaxBytesReader(w, r.Body, limit)
		}
		next.ServeHTTP(w, r)
	})
}

// writeBodyTooLarge answers as kube-apiserver does (k8s.io/apiserver,
// pkg/endpoints/handlers, limitedReadBody).
func writeBodyTooLarge(w http.ResponseWriter, r *http.Request, limit int64) {
	kubehttp.WriteStatus(w, r, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
		fmt.Sprintf("Request entity too large: limit is %d", limit))
}
