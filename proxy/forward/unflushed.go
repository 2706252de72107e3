package forward

import "net/http"

// unflushed is a ResponseWriter without flushes: the server sends when its buffers are full, and the rest at the end. It
// is for answers that a client cannot use before their end ([kubehttp.Request.Bufferable]). With flushes, a large answer would
// be sent in thousands of parts, and header, body and end of a small one apart.
type unflushed struct{ http.ResponseWriter }

// FlushError does nothing. [http.ResponseController] calls it in place of Flush.
func (unflushed) FlushError() error { return nil }

// Unwrap lets [http.ResponseController] find what else the writer can do.
func (u unflushed) Unwrap() http.ResponseWriter { return u.ResponseWriter }
