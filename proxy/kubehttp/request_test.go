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
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/reference"
)

// TestWhole: the answers about resources of Kubernetes' own groups may be buffered until they are complete, except those
// of long-running requests.
func TestWhole(t *testing.T) {
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

// TestLongRunning: RequestOf reports which requests are long-running, and which are watches. An upgrade is long-running, and
// not a watch.
func TestLongRunning(t *testing.T) {
	const pod = "/api/v1/namespaces/a/pods/b"
	type kind struct{ LongRunning, Watch bool }
	for want, requests := range map[kind][]string{
		{true, true}: {
			"GET /api/v1/pods?watch=true", "GET /api/v1/pods?watch=1&resourceVersion=5", "GET /api/v1/pods?watch", "GET /api/v1/pods?watch=",
			"GET /api/v1/pods?watch=yes", "GET /api/v1/pods?w%61tch=true", "GET /api/v1/pods?w%61tch=1&limit=x",
			"GET /api/v1/pods?watch=true&watch=false", "GET /api/v1/pods?a;b&watch=true&%zz", "HEAD /api/v1/pods?watch=true",
			"GET /apis/apps/v1/namespaces/a/deployments?watch=yes", "GET /api/v1/watch/pods", "GET /api/v1/watch/namespaces/a/pods/b",
			"GET /apis/apps/v1/watch/deployments", "GET //api//v1//pods?watch=true", // read without the empty segments
		},
		{true, false}: {
			"GET /api/v1/proxy/nodes/a", "GET " + pod + "/log", "GET " + pod + "/log?follow=true&watch=true", "GET " + pod + "/attach",
			"POST " + pod + "/exec?command=sh", "GET " + pod + "/exec?watch=true", "POST " + pod + "/portforward",
			"GET " + pod + "/proxy/x/y?watch=true", "DELETE " + pod + "/proxy", "GET /api/v1/nodes/a/proxy/logs/",
			"GET /api/v1/namespaces/a/services/b/proxy", "GET /debug/pprof/profile?seconds=60",
		},
		{false, false}: {
			"GET /api/v1/pods", "GET /api/v1/pods?labelSelector=%61", "GET /api/v1/pods?watch=false", "GET /api/v1/pods?watch=0",
			"GET /api/v1/pods?watch=FALSE&watch=true", "GET /api/v1/pods?labelSelector=watch", "GET /api/v1/pods?Watch=true",
			"POST /api/v1/namespaces/a/pods?watch=true", "GET " + pod + "?watch=true", // kube-apiserver does not read it either
			"GET /api/v1/watch", "GET /apis/apps/v1/watch", "GET " + pod, "GET " + pod + "/status", "POST " + pod + "/eviction",
			"POST " + pod + "/ephemeralcontainers", "GET /api/v1/namespaces/exec/pods/log", "GET /api/v1/namespaces/log", "GET /debug/pprof",
			"GET /", "GET /version", "GET /healthz?watch=true", "GET /openapi/v3", "GET /api", "GET /apis/apps", "WATCH /x",
			"PROXY /api/v1/pods", "GET /logs/x", "OPTIONS /api/v1/pods?watch=true", "GET /exec",
		},
	} {
		for _, request := range requests {
			method, target, _ := strings.Cut(request, " ")
			r := httptest.NewRequest(method, "http://x"+target, nil)
			if got := (kind{RequestOf(r).LongRunning, RequestOf(r).EndableWatch}); got != want {
				t.Errorf("%s: got %+v, want %+v", request, got, want)
			}
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
			if got := (kind{RequestOf(r).LongRunning, RequestOf(r).EndableWatch}); got != (kind{true, false}) {
				t.Errorf("%s, with an upgrade: got %+v, want long-running and no watch", request, got)
			}
		}
	}
	for _, r := range []*http.Request{{URL: &url.URL{}}, {URL: &url.URL{Opaque: "*"}}, {Method: "\x00", URL: &url.URL{Path: "////"}}} {
		if RequestOf(r).LongRunning {
			t.Errorf("%+v: got long-running, want short", r)
		}
	}
}

// TestLongRunningLogsNothing: Parse does not log a query that kube-apiserver's RequestInfo would log.
func TestLongRunningLogsNothing(t *testing.T) {
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

// FuzzLongRunning: LongRunning is what follows from RequestInfo for the whole request.
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

// TestWithRequest: later code gets what the first filter has read, even if the request has been changed since.
func TestWithRequest(t *testing.T) {
	changed := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		r.URL = &url.URL{Path: "/api/v1/nodes"}
		if got := RequestOf(r); !got.EndableWatch || got.Info.Resource != "pods" {
			t.Errorf("got %+v, want a watch of pods", got)
		}
	})
	WithRequest(changed).ServeHTTP(nil, httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=true", nil))
}

// TestUpgradeProtocol: UpgradeProtocol returns the value of Upgrade if Connection lists Upgrade.
func TestUpgradeProtocol(t *testing.T) {
	tests := map[string]struct {
		header http.Header
		want   string
	}{
		"none":             {http.Header{}, ""},
		"upgrade only":     {http.Header{"Upgrade": {"websocket"}}, ""},
		"connection only":  {http.Header{"Connection": {"Upgrade"}}, ""},
		"both":             {http.Header{"Connection": {"upgrade"}, "Upgrade": {"SPDY/3.1"}}, "SPDY/3.1"},
		"one of several":   {http.Header{"Connection": {"close", "a, UPGRADE ,b"}, "Upgrade": {"websocket"}}, "websocket"},
		"part of a word":   {http.Header{"Connection": {"upgrade-insecure"}, "Upgrade": {"websocket"}}, ""},
		"several upgrades": {http.Header{"Connection": {"upgrade"}, "Upgrade": {"a", "b"}}, "a"},
	}
	for name, test := range tests {
		if got := UpgradeProtocol(test.header); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// TestDescribe: a description has the words of the API in a path, and masks everything that may be a credential, wherever it
// stands.
func TestDescribe(t *testing.T) {
	const (
		bootstrap = "abcdef.0123456789abcdef"
		id        = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	)
	for path, want := range map[string][2]string{
		"/api/v1/pods":                                 {"list pods v1", ""},
		"/api/v1/namespaces":                           {"list namespaces v1", ""},
		"/api/v1/namespaces/team-a/pods":               {"list pods v1", "team-a"},
		"/api/v1/namespaces/team-a/pods/web-1/log":     {"get pods log v1", "team-a"},
		"/api/v1/namespaces/kube-system/secrets/" + id: {"get secrets v1", "kube-system"},
		"/apis/apps/v1/namespaces/ci-4711/deployments": {"list deployments v1 apps", "ci-4711"},
		"/apis/constraints.gatekeeper.sh/v1beta1/k8spspallowprivilegeescalationcontainer": {
			"list k8spspallowprivilegeescalationcontainer v1beta1 constraints.gatekeeper.sh", "",
		},
		"/api/v1/" + id:                                           {"list ? v1", ""},
		"/api/v1/eyJhbGciOi":                                      {"list ? v1", ""},
		"/apis/" + id + "/v1/pods":                                {"list pods v1 ?", ""},
		"/api/v1/namespaces/team-a/pods/x/" + id:                  {"get pods ? v1", "team-a"},
		"/api/v1/namespaces/" + bootstrap + "/pods":               {"list pods v1", "?"},
		"/api/v1/namespaces/" + id + "/pods":                      {"list pods v1", id},
		"/api/v1/namespaces/eyJhbGciOi/pods":                      {"list pods v1", "?"},
		"/api/v1/namespaces/" + strings.Repeat("a", 64) + "/pods": {"list pods v1", "?"},
		"/" + bootstrap:                                           {"other", ""},
		"/healthz/x":                                              {"/healthz", ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL = &url.URL{Path: path}
		target, namespace := Describe(r), LoggedNamespace(r)
		if got := [2]string{target, namespace}; got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// TestReference: docs/reference.md has every reason to forward, and what to do about it.
func TestReference(t *testing.T) {
	table := reference.Head("detail", "fwd", "why", "if you want it from memory")
	for _, why := range reason.Forwarding() {
		_, fwd, _ := strings.Cut(CacheForwarded(why), "fwd=")
		fwd, _, _ = strings.Cut(fwd, ";")
		sentence, remedy := why.Explain()
		table += reference.Row("`"+string(why)+"`", fwd, sentence, remedy)
	}
	reference.Check(t, "../../docs/reference.md", "reasons", table)
}
