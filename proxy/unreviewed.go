package proxy

import (
	"net/http"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// reasonTold is the reason that is told for a list that was forwarded without a review, since
// memory could not have answered it whatever the review had said. What memory knows is only for
// callers who may list the resource, and whether this one may shows in kube-apiserver's answer: it
// refuses before it looks for the objects. So this caller is told what a review would have had it
// told: review-failed, if that answer does not show it.
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
// answer begins, it puts the reason that is told into Cache-Status, the last of whose values is
// listproxy's.
//
// Metrics and traces are not the caller's. They keep memory's reason where the caller is told of a
// review that failed: none was sent, so operators must not look for what is wrong with reviews.
type unreviewedWriter struct {
	http.ResponseWriter
	record *observe.Record
	reason reason.Reason // memory's; empty once another was told
}

// WriteHeader implements [http.ResponseWriter]. Whoever forwards calls it before Write.
func (w *unreviewedWriter) WriteHeader(code int) {
	if code >= http.StatusOK && w.reason != "" {
		told := reasonTold(w.reason, code)
		w.reason = ""
		if values := w.Header()[kubehttp.CacheStatusHeader]; len(values) > 0 {
			values[len(values)-1] = forwarded(told)
			w.record.Told(told, values[len(values)-1])
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap lets [http.ResponseController] find what else the writer can do.
func (w *unreviewedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
