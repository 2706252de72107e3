package forward

import "net/http"

// unflushed is a ResponseWriter that ignores flushes: the server sends when its buffers are full, and at the end. It is for
// answers that a client cannot use before their end ([kubehttp.Request.Bufferable]). With flushes, a large answer would be
// sent in thousands of parts. A small answer would be sent in three: header, body and end.
type unflushed struct{ http.ResponseWriter }

// FlushError does nothing. [http.ResponseController] calls it in place of Flush.
func (unflushed) FlushError() error { return nil }

// Unwrap lets [http.ResponseController] find what else the writer can do.
func (u unflushed) Unwrap() http.ResponseWriter { return u.ResponseWriter }
