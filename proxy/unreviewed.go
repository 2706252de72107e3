package proxy

import (
	"net/http"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// reasonTold returns the reason in Cache-Status for a list that was forwarded without a review,
// because memory could not have answered it. Only callers who may list the resource may learn what
// memory lacks. kube-apiserver checks the right before it looks for objects, so the code of its
// answer shows whether this caller may list: then the reason is the one that a review would have led
// to. If the code does not show it, the reason is review-failed.
func reasonTold(memorys reason.Reason, code int) reason.Reason {
	switch {
	case code == http.StatusOK, code == http.StatusGone:
		return memorys
	case code == http.StatusGatewayTimeout && memorys == reason.Ahead:
		return memorys // kube-apiserver has waited for the revision
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return reason.NotAllowed
	}
	return reason.ReviewFailed
}

// unreviewedWriter is the ResponseWriter of a list that was forwarded without a review. When the
// answer begins, it sets the reason (reasonTold) in the last value of Cache-Status, which is
// listproxy's.
//
// Metrics and traces keep memory's reason even if the caller gets review-failed: the caller does
// not see them, and no review was sent, so operators must not search for a fault in reviews.
type unreviewedWriter struct {
	http.ResponseWriter
	record *observe.Record
	reason reason.Reason // memory's; empty once another was told
}

// WriteHeader implements [http.ResponseWriter]. The forwarder calls it before Write.
func (w *unreviewedWriter) WriteHeader(code int) {
	if code >= http.StatusOK && w.reason != reason.None {
		told := reasonTold(w.reason, code)
		w.reason = reason.None
		if values := w.Header()[kubehttp.CacheStatusHeader]; len(values) > 0 {
			values[len(values)-1] = kubehttp.CacheForwarded(told)
			w.record.ToldOtherReason(told, values[len(values)-1])
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap lets [http.ResponseController] find what else the writer can do.
func (w *unreviewedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
