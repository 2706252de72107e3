package proxy

import (
	"net/http"
)

// unflushed passes an answer on without flushing it whenever a part has come: the server sends what
// has filled its buffers, and the rest at the end. It is for lists of the core
// group, which nobody can read before their end, and which come in thousands of parts where they are large. In
// another group a server that is not kube-apiserver may answer, and do what it likes where a list would be.
type unflushed struct{ http.ResponseWriter }

// FlushError does nothing. It is what [http.ResponseController] calls.
func (unflushed) FlushError() error { return nil }

// Unwrap lets http.ResponseController find what else the writer can do.
func (u unflushed) Unwrap() http.ResponseWriter { return u.ResponseWriter }
