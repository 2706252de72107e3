package proxy

import (
	"bytes"
	"net/http"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// forwardedWatch is the ResponseWriter of a watch that is forwarded. It notices if kube-apiserver
// ends the watch because the revision is too old (410, as the code or in an event).
type forwardedWatch struct {
	http.ResponseWriter
	expired bool
}

// The event with which kube-apiserver ends such a watch has fewer than maxErrorEvent bytes and these two words,
// which JSON and protobuf write alike. If another small event has both, feeds ask too early, which does no harm.
const maxErrorEvent = 1 << 10

var (
	errorType     = []byte("ERROR")
	expiredReason = []byte("Expired")
)

// WriteHeader implements [http.ResponseWriter].
func (w *forwardedWatch) WriteHeader(code int) {
	w.expired = code == http.StatusGone
	w.ResponseWriter.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (w *forwardedWatch) Write(p []byte) (int, error) {
	if len(p) < maxErrorEvent && bytes.Contains(p, errorType) && bytes.Contains(p, expiredReason) {
		w.expired = true
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets [http.ResponseController] find what else the writer can do.
func (w *forwardedWatch) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// forwardedList is the ResponseWriter of a list that is forwarded. It calls answered before the final header is
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

// listAnswered returns what to do when a list that is sent now is answered. kube-apiserver authorizes a list before it
// reads anything, and asks its authorizers the same as for a review. So a 200 is a yes: the request had the caller's
// credentials, or named its user. If the answer warns, answers from memory would lack that; a review finds out
// ([auth.Warned]).
//
// A list that was not reviewed has a reason that only who may list is told: after a 200, a 400, which says that
// kube-apiserver does not know a selector's field, or a 410, which says that the state is too old.
func (h *Handler) listAnswered(r *http.Request, who *caller, found *answer) func(http.Header, int) {
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
			// Other caches' values stand before listproxy's. There is none if listproxy has refused it.
			if values := header[kubehttp.CacheStatusHeader]; len(values) > 0 {
				values[len(values)-1] = kubehttp.CacheForwarded(why)
				observe.RecordOf(r.Context()).Decided(found.asked, found.semantics, why)
			}
		}
	}
}
