package proxy

import "net/http"

// auditedWriter is to be put between a page and its connection. It counts what is given to the connection
// and remembers whether that ended early. It is not safe for concurrent use.
type auditedWriter struct {
	http.ResponseWriter
	bytes  int64
	broken bool
}

// Write implements io.Writer.
func (w *auditedWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	w.broken = w.broken || err != nil
	return n, err
}

// Unwrap lets http.ResponseController find what else the writer can do.
func (w *auditedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
