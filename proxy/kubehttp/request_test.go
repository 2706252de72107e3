package kubehttp

import (
	"bytes"
	"flag"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/test/expect"
)

// TestBufferable: Bufferable is true for a request for a resource of Kubernetes' own groups, unless the request is
// long-running.
func TestBufferable(t *testing.T) {
	const pod, lease = "/api/v1/namespaces/a/pods/b", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"
	for want, requests := range map[bool][]string{
		true: {
			"GET /api/v1/pods", "GET " + pod, "PATCH " + pod + "/status", "POST " + pod + "/eviction", "GET " + lease, "PUT " + lease,
			"PUT " + lease + "/status", "GET /apis/coordination.k8s.io/v1/leases", "GET /apis/apps/v1/deployments",
			"DELETE /apis/coordination.k8s.io/v1/namespaces/a/leases",
		},
		false: {
			"GET /api/v1/pods?watch=true", "GET " + pod + "/log", "GET " + pod + "/proxy/stream", "POST " + pod + "/exec",
			"GET /apis/coordination.k8s.io/v1/leases?watch=1", "GET /apis/cluster.x-k8s.io/v1/clusters",
			"GET /apis/example.com/v1/namespaces/a/rooms/b/stream", "GET /healthz", "GET /apis",
		},
	} {
		for _, request := range requests {
			method, target, _ := strings.Cut(request, " ")
			if got := RequestOf(httptest.NewRequest(method, target, nil)).Bufferable(); got != want {
				t.Errorf("%s: got %t, want %t", request, got, want)
			}
		}
	}
}

// TestLongRunning: a request is short, long-running, or a watch. A watch is long-running, too, and listproxy may end it between
// two events. A request that asks for an upgrade is long-running, and never a watch, whatever its target is.
func TestLongRunning(t *testing.T) {
	const pod = "/api/v1/namespaces/a/pods/b"
	type kind struct{ LongRunning, EndableWatch bool }
	short := kind{}
	longRunning := kind{LongRunning: true}
	watch := kind{LongRunning: true, EndableWatch: true}
	kindOf := func(r *http.Request) kind {
		parsed := RequestOf(r)
		return kind{LongRunning: parsed.LongRunning, EndableWatch: parsed.EndableWatch}
	}
	for want, requests := range map[kind][]string{
		watch: {
			// The watch parameter is true without a value, and with any value but false or 0. The first of several counts.
			"GET /api/v1/pods?watch=true", "GET /api/v1/pods?watch=1&resourceVersion=5", "GET /api/v1/pods?watch", "GET /api/v1/pods?watch=",
			"GET /api/v1/pods?watch=yes", "GET /api/v1/pods?w%61tch=true", "GET /api/v1/pods?w%61tch=1&limit=x",
			"GET /api/v1/pods?watch=true&watch=false", "GET /api/v1/pods?a;b&watch=true&%zz", "HEAD /api/v1/pods?watch=true",
			// In the path, and in paths with empty segments.
			"GET /apis/apps/v1/namespaces/a/deployments?watch=yes", "GET /api/v1/watch/pods", "GET /api/v1/watch/namespaces/a/pods/b",
			"GET /apis/apps/v1/watch/deployments", "GET //api//v1//pods?watch=true",
		},
		longRunning: {
			// These stream to the client, or in both directions.
			"GET /api/v1/proxy/nodes/a", "GET " + pod + "/log", "GET " + pod + "/log?follow=true&watch=true", "GET " + pod + "/attach",
			"POST " + pod + "/exec?command=sh", "GET " + pod + "/exec?watch=true", "POST " + pod + "/portforward",
			"GET " + pod + "/proxy/x/y?watch=true", "DELETE " + pod + "/proxy", "GET /api/v1/nodes/a/proxy/logs/",
			"GET /api/v1/namespaces/a/services/b/proxy", "GET /debug/pprof/profile?seconds=60",
		},
		short: {
			"GET /api/v1/pods", "GET /api/v1/pods?labelSelector=%61", "GET /api/v1/pods?watch=false", "GET /api/v1/pods?watch=0",
			"GET /api/v1/pods?watch=FALSE&watch=true", "GET /api/v1/pods?labelSelector=watch", "GET /api/v1/pods?Watch=true",
			// kube-apiserver ignores watch of a write, and of a named object.
			"POST /api/v1/namespaces/a/pods?watch=true", "GET " + pod + "?watch=true",
			// These are objects, subresources and documents, and names that look like a verb or a subresource.
			"GET /api/v1/watch", "GET /apis/apps/v1/watch", "GET " + pod, "GET " + pod + "/status", "POST " + pod + "/eviction",
			"POST " + pod + "/ephemeralcontainers", "GET /api/v1/namespaces/exec/pods/log", "GET /api/v1/namespaces/log", "GET /debug/pprof",
			"GET /", "GET /version", "GET /healthz?watch=true", "GET /openapi/v3", "GET /api", "GET /apis/apps", "WATCH /x",
			"PROXY /api/v1/pods", "GET /logs/x", "OPTIONS /api/v1/pods?watch=true", "GET /exec",
		},
	} {
		for _, request := range requests { // a method and a target
			method, target, _ := strings.Cut(request, " ")
			r := httptest.NewRequest(method, "http://x"+target, nil)
			if got := kindOf(r); got != want {
				t.Errorf("%s: got %+v, want %+v", request, got, want)
			}
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
			if got := kindOf(r); got != longRunning {
				t.Errorf("%s, with an upgrade: got %+v, want %+v", request, got, longRunning)
			}
		}
	}
	// Requests that no client sends do not panic, and are short.
	for _, r := range []*http.Request{{URL: &url.URL{}}, {URL: &url.URL{Opaque: "*"}}, {Method: "\x00", URL: &url.URL{Path: "////"}}} {
		if RequestOf(r).LongRunning {
			t.Errorf("%+v: got long-running, want short", r)
		}
	}
}

// TestParseLogsNothing: Parse does not log a query that kube-apiserver's RequestInfo would log.
func TestParseLogsNothing(t *testing.T) {
	var logged bytes.Buffer
	state := klog.CaptureState()
	defer state.Restore()
	flags := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(flags)
	expect.NoError(t, flags.Set("logtostderr", "false"))
	klog.SetOutput(&logged)
	Parse(httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=true&limit=hidden&token=secret", nil))
	klog.Flush()
	if logged.Len() > 0 {
		t.Errorf("got the log %q, want nothing logged", &logged)
	}
}

// FuzzLongRunning: LongRunning is the same as with policy.RequestInfo, although Parse reads only the watch parameter of the
// query, and policy.RequestInfo reads all of it.
func FuzzLongRunning(f *testing.F) {
	state := klog.CaptureState()
	f.Cleanup(state.Restore)
	klog.SetLogger(klog.Logger{}) // drops the log of what RequestInfo cannot decode
	f.Add("GET", "/api/v1/pods", "watch=true")
	f.Add("HEAD", "/apis/a/b/namespaces/c/d", "w%61tch=0&fieldSelector=metadata.name%3Dx")
	f.Add("GET", "/api/v1/namespaces/a/pods/b/exec", "limit=x&watch")
	f.Fuzz(func(t *testing.T, method, path, query string) {
		r := &http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: query}}
		info, err := policy.RequestInfo(r.Method, r.URL)
		want := err == nil && isLongRunning(info)
		expect.Same(t, want, RequestOf(r).LongRunning)
	})
}

// TestWithRequest: behind WithRequest, RequestOf returns what was first read, even if the request has been changed since.
func TestWithRequest(t *testing.T) {
	called := false
	changeURL := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called = true
		r.URL = &url.URL{Path: "/api/v1/nodes"}
		if got := RequestOf(r); !got.EndableWatch || got.Info.Resource != "pods" {
			t.Errorf("got %+v, want a watch of pods", got)
		}
	})
	WithRequest(changeURL).ServeHTTP(nil, httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=true", nil))
	if !called {
		t.Error("the next handler was not called")
	}
}

// TestUpgradeProtocol: UpgradeProtocol returns the value of Upgrade if Connection lists Upgrade.
func TestUpgradeProtocol(t *testing.T) {
	for name, tt := range map[string]struct {
		header http.Header
		want   string
	}{
		"none":             {header: http.Header{}},
		"upgrade only":     {header: http.Header{"Upgrade": {"websocket"}}},
		"connection only":  {header: http.Header{"Connection": {"Upgrade"}}},
		"both":             {header: http.Header{"Connection": {"upgrade"}, "Upgrade": {"SPDY/3.1"}}, want: "SPDY/3.1"},
		"one of several":   {header: http.Header{"Connection": {"close", "a, UPGRADE ,b"}, "Upgrade": {"websocket"}}, want: "websocket"},
		"part of a word":   {header: http.Header{"Connection": {"upgrade-insecure"}, "Upgrade": {"websocket"}}},
		"several upgrades": {header: http.Header{"Connection": {"upgrade"}, "Upgrade": {"a", "b"}}, want: "a"},
	} {
		if got := UpgradeProtocol(tt.header); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// TestLoggedTarget: LoggedTarget and LoggedNamespace show verbs, groups, resources and namespaces, and "?" in place of any
// other segment, which may be a credential.
func TestLoggedTarget(t *testing.T) {
	const (
		bootstrap = "abcdef.0123456789abcdef"
		id        = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	)
	type description struct{ Target, Namespace string }
	for path, want := range map[string]description{
		// Names of the API are shown.
		"/api/v1/pods":                                 {Target: "list pods v1"},
		"/api/v1/namespaces":                           {Target: "list namespaces v1"},
		"/api/v1/namespaces/team-a/pods":               {Target: "list pods v1", Namespace: "team-a"},
		"/api/v1/namespaces/team-a/pods/web-1/log":     {Target: "get pods log v1", Namespace: "team-a"},
		"/api/v1/namespaces/kube-system/secrets/" + id: {Target: "get secrets v1", Namespace: "kube-system"},
		"/apis/apps/v1/namespaces/ci-4711/deployments": {Target: "list deployments v1 apps", Namespace: "ci-4711"},
		"/apis/constraints.gatekeeper.sh/v1beta1/k8spspallowprivilegeescalationcontainer": {
			Target: "list k8spspallowprivilegeescalationcontainer v1beta1 constraints.gatekeeper.sh",
		},
		// What may be a token is masked.
		"/api/v1/" + id:                          {Target: "list ? v1"},
		"/api/v1/eyJhbGciOi":                     {Target: "list ? v1"},
		"/apis/" + id + "/v1/pods":               {Target: "list pods v1 ?"},
		"/api/v1/namespaces/team-a/pods/x/" + id: {Target: "get pods ? v1", Namespace: "team-a"},
		// A namespace is shown if it is a valid name.
		"/api/v1/namespaces/" + bootstrap + "/pods":               {Target: "list pods v1", Namespace: "?"},
		"/api/v1/namespaces/" + id + "/pods":                      {Target: "list pods v1", Namespace: id},
		"/api/v1/namespaces/eyJhbGciOi/pods":                      {Target: "list pods v1", Namespace: "?"},
		"/api/v1/namespaces/" + strings.Repeat("a", 64) + "/pods": {Target: "list pods v1", Namespace: "?"},
		// Other paths.
		"/" + bootstrap: {Target: "other"},
		"/healthz/x":    {Target: "/healthz"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL = &url.URL{Path: path}
		if got := (description{Target: LoggedTarget(r), Namespace: LoggedNamespace(r)}); got != want {
			t.Errorf("%s: got %+v, want %+v", path, got, want)
		}
	}
}
