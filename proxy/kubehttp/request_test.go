package kubehttp

import (
	"bytes"
	"flag"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"k8s.io/klog/v2"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/test/expect"
)

// TestWhole: of an object, or a list of kube-apiserver's own, nobody can use a part.
func TestWhole(t *testing.T) {
	const pod, lease = "/api/v1/namespaces/a/pods/b", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"
	for _, tt := range []struct {
		method, target string
		want           bool
	}{
		{"GET", "/api/v1/pods", true},
		{"GET", "/api/v1/pods?watch=true", false},
		{"GET", pod, true},
		{"PATCH", pod + "/status", true},
		{"POST", pod + "/eviction", true},
		{"GET", pod + "/log", false},
		{"GET", pod + "/proxy/stream", false},
		{"POST", pod + "/exec", false},
		{"GET", lease, true},
		{"PUT", lease, true},
		{"PUT", lease + "/status", true},
		{"GET", "/apis/coordination.k8s.io/v1/leases", false},
		{"DELETE", "/apis/coordination.k8s.io/v1/namespaces/a/leases", false},
		{"GET", "/apis/example.com/v1/namespaces/a/rooms/b/stream", false},
		{"GET", "/healthz", false},
		{"GET", "/apis", false},
	} {
		if got := Of(httptest.NewRequest(tt.method, tt.target, nil)).Whole(); got != tt.want {
			t.Errorf("%s %s: %t", tt.method, tt.target, got)
		}
	}
}

func TestLongRunning(t *testing.T) {
	const pod = "/api/v1/namespaces/a/pods/b"
	tests := []struct {
		method, target string
		want           bool
	}{
		{"GET", "/api/v1/pods", false},
		{"GET", "/api/v1/pods?watch=true", true},
		{"GET", "/api/v1/pods?watch=1&resourceVersion=5", true},
		{"GET", "/api/v1/pods?watch", true},
		{"GET", "/api/v1/pods?watch=", true},
		{"GET", "/api/v1/pods?watch=yes", true},
		{"GET", "/api/v1/pods?w%61tch=true", true},
		{"GET", "/api/v1/pods?labelSelector=%61", false},
		{"GET", "/api/v1/pods?watch=false", false},
		{"GET", "/api/v1/pods?watch=0", false},
		{"GET", "/api/v1/pods?watch=FALSE&watch=true", false},
		{"GET", "/api/v1/pods?watch=true&watch=false", true},
		{"GET", "/api/v1/pods?labelSelector=watch", false},
		{"GET", "/api/v1/pods?Watch=true", false},
		{"GET", "/api/v1/pods?watch=true&limit=x", true},
		{"GET", "/api/v1/pods?a;b&watch=true&%zz", true},
		{"HEAD", "/api/v1/pods?watch=true", true},
		{"POST", "/api/v1/namespaces/a/pods?watch=true", false},
		{"GET", pod + "?watch=true", false}, // kube-apiserver does not read it either
		{"GET", "/apis/apps/v1/namespaces/a/deployments?watch=true", true},
		{"GET", "/api/v1/watch/pods", true},
		{"GET", "/api/v1/watch/namespaces/a/pods/b", true},
		{"GET", "/apis/apps/v1/watch/deployments", true},
		{"GET", "/api/v1/proxy/nodes/a", true},
		{"GET", "/api/v1/watch", false},
		{"GET", "/apis/apps/v1/watch", false},
		{"GET", pod, false},
		{"GET", pod + "/log", true},
		{"GET", pod + "/log?follow=true", true},
		{"GET", pod + "/attach", true},
		{"POST", pod + "/exec?command=sh", true},
		{"GET", pod + "/exec", true},
		{"POST", pod + "/portforward", true},
		{"GET", pod + "/proxy/x/y?z", true},
		{"DELETE", pod + "/proxy", true},
		{"GET", "/api/v1/nodes/a/proxy/logs/", true},
		{"GET", "/api/v1/namespaces/a/services/b/proxy", true},
		{"GET", pod + "/status", false},
		{"POST", pod + "/eviction", false},
		{"POST", pod + "/ephemeralcontainers", false},
		{"GET", "/api/v1/namespaces/exec/pods/log", false},
		{"GET", "/api/v1/namespaces/log", false},
		{"GET", "/debug/pprof/profile?seconds=60", true},
		{"GET", "/debug/pprof", false},
		{"GET", "/", false},
		{"GET", "/version", false},
		{"GET", "/healthz?watch=true", false},
		{"GET", "/openapi/v3", false},
		{"GET", "/api", false},
		{"GET", "/apis/apps", false},
		{"GET", "//api//v1//pods?watch=true", true}, // it is read without the empty parts
		{"WATCH", "/x", false},
		{"PROXY", "/api/v1/pods", false},
		{"GET", "/logs/x", false},
		{"OPTIONS", "/api/v1/pods?watch=true", false},
		{"GET", "/exec", false},
	}
	for _, test := range tests {
		r := httptest.NewRequest(test.method, "http://x"+test.target, nil)
		if got := Of(r).LongRunning; got != test.want {
			t.Errorf("%s %s: %t, want %t", test.method, test.target, got, test.want)
		}
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		if !Of(r).LongRunning {
			t.Errorf("%s %s is not long-running though it is to be upgraded", test.method, test.target)
		}
	}
}

// TestIsWatch: of what is long-running only what can be taken up again elsewhere.
func TestIsWatch(t *testing.T) {
	const pod = "/api/v1/namespaces/a/pods/b"
	for target, want := range map[string]bool{
		"/api/v1/pods":                                     false,
		"/api/v1/pods?watch=true":                          true,
		"/api/v1/pods?w%61tch=1&limit=x":                   true,
		"/api/v1/pods?watch=false":                         false,
		"/api/v1/watch/pods":                               true,
		"/apis/apps/v1/namespaces/a/deployments?watch=yes": true,
		"/healthz?watch=true":                              false,
		pod + "?watch=true":                                false,
		pod + "/log?follow=true&watch=true":                false,
		pod + "/exec?watch=true":                           false,
		pod + "/attach":                                    false,
		pod + "/portforward":                               false,
		pod + "/proxy/x?watch=true":                        false,
	} {
		r := httptest.NewRequest(http.MethodGet, "http://x"+target, nil)
		if got := Of(r).Watch; got != want {
			t.Errorf("%s: %t, want %t", target, got, want)
		}
		if want && !Of(r).LongRunning {
			t.Errorf("%s is a watch and not long-running", target)
		}
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		if Of(r).Watch {
			t.Errorf("%s is to be upgraded", target)
		}
	}
}

func TestLongRunningOfNothing(t *testing.T) {
	for _, r := range []*http.Request{{}, {URL: &url.URL{}}, {URL: &url.URL{Opaque: "*"}}, {Method: "\x00", URL: &url.URL{Path: "////"}}} {
		if Of(r).LongRunning {
			t.Errorf("%+v is long-running", r)
		}
	}
}

// TestLongRunningLogsNothing has queries that RequestInfo would log.
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
		t.Errorf("logged %q", &logged)
	}
}

// FuzzLongRunning compares with what RequestInfo makes of the whole request.
func FuzzLongRunning(f *testing.F) {
	state := klog.CaptureState()
	f.Cleanup(state.Restore)
	klog.SetLogger(klog.Logger{}) // it logs what it cannot decode
	f.Add("GET", "/api/v1/pods", "watch=true")
	f.Add("HEAD", "/apis/a/b/namespaces/c/d", "w%61tch=0&fieldSelector=metadata.name%3Dx")
	f.Add("GET", "/api/v1/namespaces/a/pods/b/exec", "limit=x&watch")
	f.Fuzz(func(t *testing.T, method, path, query string) {
		r := &http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: query}}
		info, err := policy.RequestInfo(r.Method, r.URL)
		want := err == nil && isLongRunning(info)
		if got := Of(r).LongRunning; got != want {
			t.Errorf("%t, RequestInfo says %t", got, want)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for name, target := range map[string]string{
		"get":   "/api/v1/namespaces/a/pods/b",
		"list":  "/api/v1/namespaces/a/pods?limit=500&resourceVersion=12345",
		"watch": "/api/v1/namespaces/a/pods?watch=true&resourceVersion=12345",
	} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, target, nil)
			b.ReportAllocs()
			for b.Loop() {
				_ = Parse(r)
			}
		})
	}
}

// TestParsed: the first filter's reading is what all others get, also when the request has been
// changed.
func TestParsed(t *testing.T) {
	r := parsed(httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=true", nil))
	r.URL = &url.URL{Path: "/api/v1/nodes"}
	again := parsed(r)
	if again != r || Of(again) != Of(r) || !Of(again).Watch || Of(again).Info.Resource != "pods" {
		t.Errorf("parsed again: %+v", Of(again))
	}
}

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
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
