package proxy

import (
	"net/http"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// forwardedList is the ResponseWriter of a list that is forwarded. It calls answered before a status other than 1xx is
// written.
type forwardedList struct {
	http.ResponseWriter
	answered func(header http.Header, code int)
}

// WriteHeader implements [http.ResponseWriter].
func (w *forwardedList) WriteHeader(code int) {
	if code >= http.StatusOK {
		w.answered(w.Header(), code)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap lets [http.ResponseController] find what else the writer can do.
func (w *forwardedList) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// onListAnswer returns the function that [forwardedList] calls. It must be called right before the list is sent.
//
// kube-apiserver authorizes a list before it reads anything, by the same attributes as a SubjectAccessReview. So a 200
// means that the caller may list, since the request was sent as the caller. A 200 with a Warning is not remembered,
// since answers from memory would lack the warning; a review finds out ([auth.Warned]).
//
// The reason in Cache-Status may only be shown to callers who may list. For a list that was not reviewed, three codes
// prove that: 200, 400 (kube-apiserver does not know a selector's field) and 410 (the state is too old). After any
// other code, the reason is replaced by one that reveals nothing.
func (h *Handler) onListAnswer(r *http.Request, who *caller, found *answer) func(http.Header, int) {
	sent := time.Now()
	return func(header http.Header, code int) {
		warned := who.Identity.BringsToken() && len(header.Values("Warning")) > 0
		switch {
		case code == http.StatusOK && !warned:
			h.Authorizer.Learn(who.Identity, &found.attributes, sent)
		case found.unreviewed && code != http.StatusOK && code != http.StatusBadRequest && code != http.StatusGone:
			why := reason.NotAllowed
			if code == http.StatusUnauthorized {
				why = reason.UnknownCaller
			}
			// The last value is listproxy's, after those of other caches. There is none if listproxy itself refused
			// the request.
			if values := header[kubehttp.CacheStatusHeader]; len(values) > 0 {
				values[len(values)-1] = kubehttp.CacheForwarded(why)
				observe.RecordOf(r.Context()).SetDecision(found.asked, found.semantics, why)
			}
		}
	}
}
