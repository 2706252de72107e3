package server

import (
	"net/http"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// LimitBodies returns next with a bound on request bodies, in bytes. 0 is none; long-running
// requests have none either, since they send a stream and no object.
//
// A request that says that its body is longer gets 413, in the words of kube-apiserver, whose own
// bound is 3 MiB (MaxRequestBodyBytes; aggregated API servers may have others). A body of unknown
// length is cut off at the bound: reading it then fails with an [http.MaxBytesError], and the
// forwarder answers with the same 413.
func LimitBodies(next http.Handler, limit int64) http.Handler {
	if limit <= 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Body == nil || r.Body == http.NoBody || kubehttp.Of(r).LongRunning:
		case r.ContentLength > limit:
			observe.RecordOf(r.Context()).Refused(w.Header(), observe.RefusedBody)
			kubehttp.WriteBodyTooLarge(w, r, limit)
			return
		case r.ContentLength < 0: // a known length cannot be exceeded
			r.Body = http.MaxBytesReader(w, r.Body, limit)
		}
		next.ServeHTTP(w, r)
	})
}
