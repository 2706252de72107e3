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

// onListAnswer returns the onAnswer of a [forwardedList]. It must be called right before the list is sent, since the answer
// shows which rights the caller had at that moment or later.
//
// kube-apiserver authorizes a list before it reads anything, by the same attributes as a SubjectAccessReview. The list is
// sent as the caller, so a 200 means that the caller may list, and is remembered like the answer to a review. But a 200 with
// a Warning is not remembered if the caller has a token. The warning may be about the token, and answers from memory would
// lack it, so the next request is reviewed ([auth.Warned]).
func (h *Handler) onListAnswer(r *http.Request, who *caller, a *answer) func(http.Header, int) {
	sent := time.Now()
	return func(header http.Header, code int) {
		warned := who.Identity.HasToken() && len(header.Values("Warning")) > 0
		switch {
		case code == http.StatusOK && !warned:
			h.Authorizer.Learn(who.Identity, &a.attributes, sent)
		case a.unreviewed && !showsRight(code):
			hideReason(r, a, header, code)
		}
	}
}

// showsRight reports whether kube-apiserver gives an answer with this code only to callers who may list: 200, 400 (it does
// not know a selector's field) and 410 (the state is too old).
func showsRight(code int) bool {
	return code == http.StatusOK || code == http.StatusBadRequest || code == http.StatusGone
}

// hideReason replaces the reason in Cache-Status by one that reveals nothing about memory. Only callers who may list may know
// the true reason why their list was forwarded.
func hideReason(r *http.Request, a *answer, header http.Header, code int) {
	why := reason.NotAllowed
	if code == http.StatusUnauthorized {
		why = reason.UnknownCaller
	}
	// The last value is listproxy's; other caches before the upstream may have set the first ones. There is no value if
	// listproxy itself refused the request.
	if values := header[kubehttp.CacheStatusHeader]; len(values) > 0 {
		values[len(values)-1] = kubehttp.CacheForwarded(why)
		observe.RecordOf(r.Context()).SetDecision(a.asked, a.semantics, why)
	}
}
