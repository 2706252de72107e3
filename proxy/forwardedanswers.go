package proxy

import (
	"net/http"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// forwardedList is the ResponseWriter of a list that is forwarded. It calls onAnswer before it writes a status other than
// 1xx, so that onAnswer can change the header.
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

// onListAnswer returns the function for a [forwardedList]. Call onListAnswer right before the list is sent, since a right
// counts from that time.
//
// kube-apiserver authorizes a list before it reads anything, by the same attributes as a SubjectAccessReview. The list is
// sent as the caller, so a 200 means that the caller may list, and is remembered like a review. But a 200 with a Warning
// is not: answers from memory would lack the warning, so the next request is reviewed ([auth.Warned]).
//
// The reason in Cache-Status may only be shown to callers who may list. If the list was not reviewed, three codes prove
// that right: 200, 400 (kube-apiserver does not know a selector's field) and 410 (the state is too old). After any other
// code, the reason is replaced by a reason that reveals nothing.
func (h *Handler) onListAnswer(r *http.Request, who *caller, found *answer) func(http.Header, int) {
	sent := time.Now()
	return func(header http.Header, code int) {
		warned := who.Identity.HasToken() && len(header.Values("Warning")) > 0
		switch {
		case code == http.StatusOK && !warned:
			h.Authorizer.Learn(who.Identity, &found.attributes, sent)
		case found.unreviewed && code != http.StatusOK && code != http.StatusBadRequest && code != http.StatusGone:
			why := reason.NotAllowed
			if code == http.StatusUnauthorized {
				why = reason.UnknownCaller
			}
			// The last value is listproxy's; other caches before the upstream may have set the first ones. There is no
			// value if listproxy itself refused the request.
			if values := header[kubehttp.CacheStatusHeader]; len(values) > 0 {
				values[len(values)-1] = kubehttp.CacheForwarded(why)
				observe.RecordOf(r.Context()).SetDecision(found.asked, found.semantics, why)
			}
		}
	}
}
