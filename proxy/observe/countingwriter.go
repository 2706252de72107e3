package observe

import "net/http"

// CountingWriter is an [http.ResponseWriter] that records the status, and counts the bytes of the body.
type CountingWriter struct {
	http.ResponseWriter
	Code  int // of the final response; 0 until it has begun
	Bytes int64
}

// WriteHeader implements [http.ResponseWriter]. A 1xx other than 101 is not final: a final response follows it.
func (w *CountingWriter) WriteHeader(code int) {
	final := code >= http.StatusOK || code == http.StatusSwitchingProtocols
	if final && w.Code == 0 {
		w.Code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (w *CountingWriter) Write(p []byte) (int, error) {
	if w.Code == 0 {
		w.Code = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.Bytes += int64(n)
	return n, err
}

// Unwrap lets [http.ResponseController] find the optional methods of the wrapped writer.
func (w *CountingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
