package kubehttp

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/policy"
)

// Request has facts about a request, as kube-apiserver would read it. The first filter ([WithRequest]) parses the request once,
// and all later code gets the facts from the request's context:
//
//	if kubehttp.RequestOf(r).LongRunning { … }
//
// The facts depend on the method, the path, the watch parameter and the headers Connection and Upgrade only. A Request must not
// be changed.
type Request struct {
	// Info is kube-apiserver's RequestInfo for the method and the path alone (see [policy.RequestInfo]): for
	// GET /api/v1/pods?watch=1 its verb is list, while EndableWatch is true. Info is never nil. IsResourceRequest is false
	// if the path is not a resource's, or cannot be parsed.
	Info *request.RequestInfo
	// Upgrade is the protocol to which the request asks to upgrade the connection; empty for most requests.
	Upgrade string
	// LongRunning reports whether the request may take as long as its client likes. As in kube-apiserver, a watch, a log or an
	// exec is long-running. Here every request for an upgrade is long-running, too, even if its path cannot be parsed.
	LongRunning bool
	// EndableWatch reports whether the request is a watch that listproxy may end between two events. The client then
	// continues from there, perhaps at another replica. A watch over a WebSocket is not endable, since a proxy does not know
	// where its events end.
	EndableWatch bool
}

// requestKey is the key of the *Request in a request's context.
type requestKey struct{}

// WithRequest is the first filter of a chain. It parses the request for the later filters.
func WithRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, Parse(r))))
	})
}

// RequestOf returns the Request in r's context, or parses r if there is none.
func RequestOf(r *http.Request) *Request {
	if parsed, ok := r.Context().Value(requestKey{}).(*Request); ok {
		return parsed
	}
	return Parse(r)
}

// Parse parses r, even if r's context has a Request already.
func Parse(r *http.Request) *Request {
	upgrade := UpgradeProtocol(r.Header)
	isUpgrade := upgrade != ""
	info, err := policy.RequestInfo(r.Method, &url.URL{Path: r.URL.Path})
	if err != nil {
		return &Request{Info: &request.RequestInfo{}, Upgrade: upgrade, LongRunning: isUpgrade}
	}
	isListWithWatch := info.Verb == "list" && asksToWatch(r.URL.RawQuery)
	isWatch := info.IsResourceRequest && (info.Verb == "watch" || isListWithWatch)
	return &Request{
		Info: info, Upgrade: upgrade, EndableWatch: isWatch && !isUpgrade, LongRunning: isUpgrade || isWatch || isLongRunning(info),
	}
}

// Bufferable reports whether the answer may be buffered until it is complete, since its client cannot use a part of it. This
// holds for short requests for resources of Kubernetes' own groups. Other groups may belong to an aggregated API server that
// streams its answers.
func (r *Request) Bufferable() bool {
	isKubernetesGroup := !strings.Contains(r.Info.APIGroup, ".") || strings.HasSuffix(r.Info.APIGroup, ".k8s.io")
	return r.Info.IsResourceRequest && !r.LongRunning && isKubernetesGroup
}

// asksToWatch reports whether a query makes kube-apiserver treat a list as a watch. The first watch parameter counts, even
// if another part of the query cannot be parsed.
func asksToWatch(rawQuery string) bool {
	if !strings.Contains(rawQuery, "watch") && !strings.Contains(rawQuery, "%") {
		return false // nearly all queries end here, without the cost of parsing them
	}
	query, _ := url.ParseQuery(rawQuery)
	values := query["watch"]
	var watch bool
	_ = runtime.Convert_Slice_string_To_bool(&values, &watch, nil) // never fails
	return watch
}

// These verbs and subresources are long-running in kube-apiserver, which exempts them from its limits on requests in
// flight and on the duration of a request (pkg/controlplane/apiserver/config.go, BuildGenericConfig).
var (
	longRunningVerbs        = sets.New("watch", "proxy")
	longRunningSubresources = sets.New("attach", "exec", "proxy", "log", "portforward")
)

// isLongRunning does what BasicLongRunningRequestCheck of k8s.io/apiserver does (pkg/server/filters), whose package would link
// all of API priority and fairness. There is one difference: if the path is not a resource's, the verb is ignored. For such a
// path, the verb is the HTTP method, and any client can send the method WATCH.
func isLongRunning(info *request.RequestInfo) bool {
	if !info.IsResourceRequest {
		return strings.HasPrefix(info.Path, "/debug/pprof/")
	}
	return longRunningVerbs.Has(info.Verb) || longRunningSubresources.Has(info.Subresource)
}

// UpgradeProtocol returns the protocol to which the header of a request or a 101 upgrades the connection, like "websocket"
// or "SPDY/3.1"; "" if there is no upgrade.
func UpgradeProtocol(h http.Header) string {
	if httpguts.HeaderValuesContainsToken(h["Connection"], "Upgrade") {
		return h.Get("Upgrade")
	}
	return ""
}
