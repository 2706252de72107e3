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

// listAnswerHook returns the beforeHeader for a forwarded list. beforeHeader does two things:
//
//   - If the answer proves the caller's right to list, it remembers the right, as after a review. The right counts from the
//     call of listAnswerHook, so listAnswerHook must be called right before the list is sent.
//   - If the caller may not know why the list was forwarded, it hides this reason in Cache-Status. It does so only for a list
//     that was forwarded without a review (d.unreviewed): the reason may tell what memory has.
//
// The answer decides:
//
//	answer                           right remembered   reason in Cache-Status
//	200                              yes                kept
//	200 with a Warning, to a token   no                 kept
//	400, 410                         no                 kept
//	other, d.unreviewed              no                 hidden
//	other                            no                 kept
//
// kube-apiserver authorizes a list before it reads anything, by the same attributes as in a SubjectAccessReview. So a 200
// proves as much as a review that says yes. A 400 (unknown field in a selector) and a 410 (the state is too old) also come
// after the authorization. A Warning may be about the token. Answers from memory would lack it, so the right is not remembered,
// and the next request is reviewed ([auth.Warned]).
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

// hideReason replaces the reason in Cache-Status and in the request's record. The new reason says only that the caller may not
// list, or is unknown.
func hideReason(r *http.Request, d *decision, header http.Header, code int) {
	why := reason.NotAllowed
	if code == http.StatusUnauthorized {
		why = reason.UnknownCaller
	}
	// The last value is listproxy's. Caches between listproxy and kube-apiserver may have set others. There is no value if
	// listproxy itself has refused the request.
	if values := header[kubehttp.CacheStatusHeader]; len(values) > 0 {
		values[len(values)-1] = kubehttp.CacheForwarded(why)
		observe.RecordOf(r.Context()).SetDecision(d.asked, d.Semantics, why)
	}
}
