package proxy

import (
	"net/http"
	"net/url"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// unflushed passes an answer on without flushing it whenever a part has come: the server sends what
// has filled its buffers, and the rest at the end. It is for lists of kube-apiserver's own, which nobody can read before
// their end; the large ones come in thousands of parts.
type unflushed struct{ http.ResponseWriter }

// FlushError does nothing. It is what [http.ResponseController] calls.
func (unflushed) FlushError() error { return nil }

// Unwrap lets http.ResponseController find what else the writer can do.
func (u unflushed) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// isList says whether r asks for a list of the core group, and not for a watch. In another group a
// server that is not kube-apiserver may answer, and do what it likes where a list would be.
func isList(r *http.Request) bool {
	if r.Method != http.MethodGet || r.URL == nil || kubehttp.LongRunning(r) {
		return false
	}
	info, err := policy.RequestInfo(r.Method, &url.URL{Path: r.URL.Path})
	return err == nil && info.IsResourceRequest && info.Verb == "list" && info.APIPrefix == "api"
}
