package forward

import "net/http"

// unflushed passes an answer on without a flush after each part: the server sends when its buffers
// are full, and the rest at the end. It is for answers that nobody can read before their end
// ([kubehttp.Request.Whole]): a large one comes in thousands of parts, and the header, the body and the
// end of a small one would be sent one by one.
type unflushed struct{ http.ResponseWriter }

// FlushError does nothing. It is what [http.ResponseController] calls.
func (unflushed) FlushError() error { return nil }

// Unwrap lets http.ResponseController find what else the writer can do.
func (u unflushed) Unwrap() http.ResponseWriter { return u.ResponseWriter }
