package forward

import "net/http"

// unflushed passes an answer on without a flush after each part: the server sends when its buffers
// are full, and the rest at the end. It is for lists of the core group. Nobody can read these
// before their end, and large ones come in thousands of parts. In other groups the answer may be
// from another server than kube-apiserver, and need not be a list.
type unflushed struct{ http.ResponseWriter }

// FlushError does nothing. It is what [http.ResponseController] calls.
func (unflushed) FlushError() error { return nil }

// Unwrap lets http.ResponseController find what else the writer can do.
func (u unflushed) Unwrap() http.ResponseWriter { return u.ResponseWriter }
