package proxy

import (
	"net/http"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// headerHook is the ResponseWriter of a list that is forwarded. It calls beforeHeader before it writes the final status, and
// beforeHeader can change the header. It relies on [forward.Forwarder], which always calls WriteHeader.
type headerHook struct {
	http.ResponseWriter
	beforeHeader func(header http.Header, code int)
}

// WriteHeader implements [http.ResponseWriter].
func (w *headerHook) WriteHeader(code int) {
	if code >= http.StatusOK { // not 1xx
		w.beforeHeader(w.Header(), code)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap lets [http.ResponseController] find the other methods of the writer.
func (w *headerHook) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// listAnswerHook returns the beforeHeader for a forwarded list: it remembers the caller's right if the answer proves it, and hides
// the reason in Cache-Status if the caller may not know it. listAnswerHook must be called right before the list is sent, since the
// right counts from that moment.
//
//	answer                           right remembered   reason in Cache-Status
//	200                              yes                kept
//	200 with a Warning, to a token   no                 kept
//	400, 410                         no                 kept
//	other, d.unreviewed              no                 hidden
//	other                            no                 kept
//
// kube-apiserver authorizes a list before it reads anything, by the same attributes as a SubjectAccessReview. So a 200 proves as
// much as a review that allows the list. A 400 (unknown field in a selector) and a 410 (the state is too old) come after the authorization,
// too. A Warning may be about the token, and answers from memory would lack it, so the next request is reviewed ([auth.Warned]).
func (h *Handler) listAnswerHook(r *http.Request, d *decision) func(http.Header, int) {
	sent := time.Now()
	return func(header http.Header, code int) {
		id := d.caller.Identity
		isWarned := id.HasToken() && len(header.Values("Warning")) > 0
		switch {
		case code == http.StatusOK && !isWarned:
			h.Authorizer.Learn(id, &d.attributes, sent)
		case code == http.StatusOK, code == http.StatusBadRequest, code == http.StatusGone:
			// The caller may list, and may know the reason.
		case d.unreviewed:
			hideReason(r, d, header, code)
		}
	}
}

// hideReason replaces the reason in Cache-Status and in the request's record, since it may tell what is in memory. The new reason
// says only that the caller may not list, or is unknown.
func hideReason(r *http.Request, d *decision, header http.Header, code int) {
	why := reason.NotAllowed
	if code == http.StatusUnauthorized {
		why = reason.UnknownCaller
	}
	// The last value is listproxy's, and the others are those of caches before the upstream. There is no value if listproxy itself
	// has refused the request.
	if values := header[kubehttp.CacheStatusHeader]; len(values) > 0 {
		values[len(values)-1] = kubehttp.CacheForwarded(why)
		observe.RecordOf(r.Context()).SetDecision(d.asked, d.Semantics, why)
	}
}
