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

// Request has the facts about a request, as kube-apiserver would read it. The first filter ([WithRequestInfo]) parses
// it once. All later code takes it from the request's context:
//
//	if kubehttp.RequestOf(r).Watch { … }
//
// It is read from the method, the path, the watch parameter and the Connection header, and from
// nothing else. It is never changed.
type Request struct {
	// Info is kube-apiserver's RequestInfo for the method and the path alone, see [policy.RequestInfo]. It is never
	// nil. The verb of a watch is list, unless the path says watch. If the path is not a resource's or cannot be
	// parsed, IsResourceRequest is false.
	Info *request.RequestInfo
	// Upgrade is the protocol to which the connection is to be upgraded. It is empty for most requests.
	Upgrade string
	// LongRunning reports whether the request may take as long as its client likes: watches, logs, execs and the like
	// may, as in kube-apiserver, and all upgrades. A request that cannot be parsed is short.
	LongRunning bool
	// Watch reports whether the request is a watch that listproxy may end between two events: its client then goes on
	// from there, at another replica for example. A watch over a WebSocket is not, since nobody between its two ends
	// can tell where an event ends.
	Watch bool
}

// requestKey is the key of a *Request in the request's own context.
type requestKey struct{}

// WithRequestInfo is the first filter of a chain. It parses the request for all others.
func WithRequestInfo(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, Parse(r))))
	})
}

// RequestOf returns the Request of r from its context, or parses r if there is none.
func RequestOf(r *http.Request) *Request {
	if parsed, ok := r.Context().Value(requestKey{}).(*Request); ok {
		return parsed
	}
	return Parse(r)
}

// Parse returns the Request of r without regard to its context.
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
	watch := info.IsResourceRequest && (info.Verb == "watch" || (info.Verb == "list" && asksToWatch(r.URL.RawQuery)))
	parsed.Watch = watch && parsed.Upgrade == ""
	parsed.LongRunning = parsed.LongRunning || watch || isLongRunning(info)
	return parsed
}

// Whole reports whether the answer may be buffered until it is complete, since no client can use a part of it. That is
// so for all resources of Kubernetes' own groups, except for long-running requests. An aggregated API server may stream
// its answers bit by bit.
func (r *Request) Whole() bool {
	group := r.Info.APIGroup
	return r.Info.IsResourceRequest && !r.LongRunning && (!strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io"))
}

// asksToWatch reports whether kube-apiserver takes a query for that of a watch. It reads the first watch parameter, even
// if another part of the query cannot be parsed.
func asksToWatch(rawQuery string) bool {
	if !strings.Contains(rawQuery, "watch") && !strings.Contains(rawQuery, "%") {
		return false // nearly all queries: the word is not in it, and cannot be percent-encoded either
	}
	query, _ := url.ParseQuery(rawQuery)
	values := query["watch"]
	var watch bool
	_ = runtime.Convert_Slice_string_To_bool(&values, &watch, nil) // it never fails
	return watch
}

// These verbs and subresources are long-running in kube-apiserver: its limits of requests in flight and of a request's
// duration exempt them (pkg/controlplane/apiserver/config.go, BuildGenericConfig).
var (
	longRunningVerbs        = sets.New("watch", "proxy")
	longRunningSubresources = sets.New("attach", "exec", "proxy", "log", "portforward")
)

// isLongRunning is BasicLongRunningRequestCheck of k8s.io/apiserver (pkg/server/filters), whose
// package would bring in all of API priority and fairness. It differs in one thing. If a path is not a resource's, the
// verb is the HTTP method, and a client could call its method WATCH: here that does not make a request long-running.
func isLongRunning(info *request.RequestInfo) bool {
	if !info.IsResourceRequest {
		return strings.HasPrefix(info.Path, "/debug/pprof/")
	}
	return longRunningVerbs.Has(info.Verb) || longRunningSubresources.Has(info.Subresource)
}
