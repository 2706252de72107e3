package kubehttp

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/policy"
)

// Request is what a request asks for, as kube-apiserver would read it. It is read once, by the
// first filter ([WithRequestInfo]). All that come later take it from the request's context:
//
//	if kubehttp.Of(r).Watch { … }
//
// It is read from the method, the path, the watch parameter and the Connection header, and from
// nothing else. It is never changed.
type Request struct {
	// Info is what kube-apiserver makes of the method and the path alone: for a watch its verb is
	// list, unless the path says watch. Where the path is no resource's or cannot be read,
	// IsResourceRequest is false. It is never nil. See [policy.RequestInfo].
	Info *request.RequestInfo
	// Upgrade is the protocol that the connection is to be upgraded to, or empty.
	Upgrade string
	// LongRunning says that the request may take as long as its client likes: a watch, the log of
	// a pod, an exec and the like, as in kube-apiserver, and whatever is to be upgraded. All
	// others are short, also what cannot be read.
	LongRunning bool
	// Watch says that the request is a watch, which its client can take up elsewhere from where
	// it was. A watch that is to be upgraded to a WebSocket is not: only its two ends know where
	// an event ends.
	Watch bool
}

// requestKey is the key of a *Request in the request's own context.
type requestKey struct{}

// parsed returns r with its Request in its context.
func parsed(r *http.Request) *http.Request {
	if r.Context().Value(requestKey{}) != nil {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), requestKey{}, Parse(r)))
}

// WithRequestInfo is the first filter of a chain: it reads the request for all others.
func WithRequestInfo(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, parsed(r)) })
}

// Of returns the Request of r: from its context, else by reading r.
func Of(r *http.Request) *Request {
	if parsed, ok := r.Context().Value(requestKey{}).(*Request); ok {
		return parsed
	}
	return Parse(r)
}

// Parse reads r.
func Parse(r *http.Request) *Request {
	parsed := &Request{Info: &request.RequestInfo{}, Upgrade: UpgradeProtocol(r.Header)}
	parsed.LongRunning = parsed.Upgrade != ""
	if r.URL == nil {
		return parsed
	}
	info, err := policy.RequestInfo(r.Method, &url.URL{Path: r.URL.Path})
	if err != nil {
		return parsed
	}
	parsed.Info = info
	watch := info.IsResourceRequest && (info.Verb == "watch" || info.Verb == "list" && asksToWatch(r.URL.RawQuery))
	parsed.Watch = watch && parsed.Upgrade == ""
	parsed.LongRunning = parsed.LongRunning || watch || isLongRunning(info)
	return parsed
}

// Whole reports whether nobody can use a part of the answer to r: it is one object of a group of
// Kubernetes' own, or anything of the core group, which kube-apiserver itself serves. All else may
// be answered by another server, which may send its answer bit by bit.
func (r *Request) Whole() bool {
	switch {
	case !r.Info.IsResourceRequest || r.LongRunning:
		return false
	case r.Info.APIPrefix == "api":
		return true
	}
	if group := r.Info.APIGroup; strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") {
		return false
	}
	switch r.Info.Verb {
	case "get", "create", "update", "patch", "delete":
		return r.Info.Subresource == "" || r.Info.Subresource == "status"
	}
	return false
}

// asksToWatch reports whether kube-apiserver reads a query as that of a watch: by the first watch
// parameter, whatever else is in the query and cannot be read.
func asksToWatch(rawQuery string) bool {
	if !strings.Contains(rawQuery, "watch") && !strings.Contains(rawQuery, "%") {
		return false // as nearly all, without reading the query
	}
	query, _ := url.ParseQuery(rawQuery)
	values := query["watch"]
	var watch bool
	_ = runtime.Convert_Slice_string_To_bool(&values, &watch, nil) // it never fails
	return watch
}

// What kube-apiserver exempts from its limits of requests in flight and of a
// request's duration (pkg/controlplane/apiserver/config.go, BuildGenericConfig).
var (
	longRunningVerbs        = sets.New("watch", "proxy")
	longRunningSubresources = sets.New("attach", "exec", "proxy", "log", "portforward")
)

// isLongRunning is BasicLongRunningRequestCheck of k8s.io/apiserver (pkg/server/filters), whose
// package would bring in all of API priority and fairness. It differs in one thing: where a path
// is no resource's, the verb is the method, and a method called WATCH makes no request a long one.
func isLongRunning(info *request.RequestInfo) bool {
	if !info.IsResourceRequest {
		return strings.HasPrefix(info.Path, "/debug/pprof/")
	}
	return longRunningVerbs.Has(info.Verb) || longRunningSubresources.Has(info.Subresource)
}
