package proxy

import (
	"net/http"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// forwardedList is the ResponseWriter of a list that is forwarded. It calls onAnswer before it writes a status other than
// 1xx, so that onAnswer can change the header. [forward.Forwarder] always writes a status.
type forwardedList struct {
	http.ResponseWriter
	onAnswer func(header http.Header, code int)
}

// WriteHeader implements [http.ResponseWriter].
func (w *forwardedList) WriteHeader(code int) {
	if code >= http.StatusOK {
		w.onAnswer(w.Header(), code)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap lets [http.ResponseController] find the other methods of the writer.
func (w *forwardedList) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// onListAnswer returns the onAnswer of a [forwardedList]. It must be called right before the list is sent, since a right
// that the answer proves counts from that moment.
//
// kube-apiserver authorizes a list before it reads anything, by the same attributes as a SubjectAccessReview. So a 200 to
// the caller's credentials means that the caller may list, and is remembered like the answer to a review. The exception is a
// 200 with a Warning to a caller with a token: the warning may be about the token, and answers from memory would lack it.
// Then nothing is remembered, and the next request is reviewed ([auth.Warned]).
func (h *Handler) onListAnswer(r *http.Request, d *decision) func(http.Header, int) {
	sent := time.Now()
	return func(header http.Header, code int) {
		id := d.caller.Identity
		warned := id.HasToken() && len(header.Values("Warning")) > 0
		switch {
		case code == http.StatusOK && !warned:
			h.Authorizer.Learn(id, &d.attributes, sent)
		case d.unreviewed && !showsRight(code):
			hideReason(r, d, header, code)
		}
	}
}

// showsRight reports whether kube-apiserver gives an answer with this code only to callers who may list: 200, 400 (unknown
// field in a selector) and 410 (the state is too old).
func showsRight(code int) bool {
	return code == http.StatusOK || code == http.StatusBadRequest || code == http.StatusGone
}

// hideReason replaces the reason in Cache-Status by one that reveals nothing about memory, since only callers who may list may
// know the true one.
func hideReason(r *http.Request, d *decision, header http.Header, code int) {
	why := reason.NotAllowed
	if code == http.StatusUnauthorized {
		why = reason.UnknownCaller
	}
	// The last value is listproxy's, and the others are those of caches before the upstream. If listproxy itself refused the
	// request, there is no value.
	if values := header[kubehttp.CacheStatusHeader]; len(values) > 0 {
		values[len(values)-1] = kubehttp.CacheForwarded(why)
		observe.RecordOf(r.Context()).SetDecision(d.asked, d.Semantics, why)
	}
}
