package kubehttp

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/policy"
)

// What kube-apiserver exempts from its limits of requests in flight and of a
// request's duration (pkg/controlplane/apiserver/config.go, BuildGenericConfig).
var (
	longRunningVerbs        = sets.New("watch", "proxy")
	longRunningSubresources = sets.New("attach", "exec", "proxy", "log", "portforward")
)

// LongRunning says whether r is one that may take as long as its client likes: a
// watch, the log of a pod, an exec and the like, as kube-apiserver has it, and
// whatever is to be upgraded. All others are short, also what cannot be read.
func LongRunning(r *http.Request) bool {
	if UpgradeProtocol(r.Header) != "" {
		return true
	}
	info := longInfo(r)
	return info != nil && isLongRunning(info)
}

// IsWatch says whether r is a watch, which its client can take up again elsewhere from where it was. One that
// is to be upgraded, to a WebSocket, is none: only its two ends know where an event ends.
func IsWatch(r *http.Request) bool {
	info := longInfo(r)
	return info != nil && info.IsResourceRequest && info.Verb == "watch" && UpgradeProtocol(r.Header) == ""
}

// longInfo returns what kube-apiserver would make of r, as far as it matters to whether r is long, or nil if
// r cannot be, or cannot be read.
func longInfo(r *http.Request) *request.RequestInfo {
	if r.URL == nil || !mayBeLong(r.URL) {
		return nil
	}
	// RequestInfo takes nothing from a query that matters here but watch. Where it
	// cannot decode one, it logs all of it, and what callers ask for is in no log;
	// a watch alone always decodes.
	u := url.URL{Path: r.URL.Path}
	if mayName(r.URL.RawQuery, "watch") {
		if watch := r.URL.Query()["watch"]; len(watch) > 0 {
			u.RawQuery = url.Values{"watch": watch}.Encode()
		}
	}
	info, err := policy.RequestInfo(r.Method, &u)
	if err != nil {
		return nil
	}
	return info
}

// mayBeLong says whether a URL holds any of the words without which no request for it is long. It
// spares most requests a look at the whole.
func mayBeLong(u *url.URL) bool {
	if mayName(u.RawQuery, "watch") {
		return true
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if longRunningVerbs.Has(segment) || longRunningSubresources.Has(segment) || segment == "debug" {
			return true
		}
	}
	return false
}

// isLongRunning is k8s.io/apiserver's BasicLongRunningRequestCheck
// (pkg/server/filters), whose package would bring in all of API priority and
// fairness. It is stricter in one thing: where a path is no resource's, the verb
// is the method, and a method called WATCH makes no request a long one.
func isLongRunning(info *request.RequestInfo) bool {
	if !info.IsResourceRequest {
		return strings.HasPrefix(info.Path, "/debug/pprof/")
	}
	return longRunningVerbs.Has(info.Verb) || longRunningSubresources.Has(info.Subresource)
}

// mayName says whether a query can have a parameter of that name, however it is
// spelt. It is cheaper than to parse the query.
func mayName(rawQuery, name string) bool {
	return strings.Contains(rawQuery, name) || strings.Contains(rawQuery, "%")
}
