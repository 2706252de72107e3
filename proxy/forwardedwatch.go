package proxy

import (
	"bytes"
	"net/http"
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
