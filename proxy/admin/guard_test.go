package admin

import (
	"cmp"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// newPort returns the admin port's handler with all its pages. hosts are further names that a request may have as its Host.
func newPort(t *testing.T, hosts ...string) http.Handler {
	t.Helper()
	s := newHealthySource(t)
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "up 1") })
	return New(s, metrics, []string{"config=policy.yaml", "secure-port=8443"}, hosts)
}

// ask sends port a request, and returns the response. The request comes through kubectl port-forward. change is applied to it
// before it is sent.
func ask(port http.Handler, method, target string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, http.NoBody)
	r.Host = "localhost:8081"
	r.RemoteAddr = "[::1]:40000"
	change(r)
	w := httptest.NewRecorder()
	port.ServeHTTP(w, r)
	return w
}

// get sends port a GET through kubectl port-forward, and returns the response.
func get(port http.Handler, target string) *httptest.ResponseRecorder {
	return ask(port, http.MethodGet, target, func(*http.Request) {})
}

// guardedPaths are the paths behind guard.
var guardedPaths = []string{"/statusz", "/statusz?format=json", "/flagz", "/metrics", "/debug/pprof/", "/debug/pprof/cmdline"}

// TestGuardChecksHost: guard refuses a request if its Host is a name that an attacker may own in the public DNS (DNS
// rebinding). It accepts all other names, and those of New's hosts. Health checks are not guarded.
func TestGuardChecksHost(t *testing.T) {
	port := newPort(t, "Listproxy.example.com", "10-0-0-1.pods.corp.test")
	allowed := []string{
		"127.0.0.1:8081", "10.1.2.3", "[::1]:8081", "[fd00::1]", "[fe80::1%25eth0]:8081", // a probe, Prometheus
		"localhost", "LOCALHOST:8081", "a.localhost:1", // kubectl port-forward
		"listproxy-admin:8081", "node-7", // a Service in the same namespace, a machine
		"listproxy-admin.listproxy.svc:8081", "listproxy-admin.listproxy.svc.cluster.local.:8081",
		"listproxy.example.com:8081", "LISTPROXY.EXAMPLE.COM.", "10-0-0-1.pods.corp.test", // hosts
		"", // a request in HTTP/1.0 without a Host
	}
	refused := []string{
		"evil.example.com", "evil.example.com:8081", "x.listproxy.example.com",
		"localhost.evil.com", "127.0.0.1.evil.com", "a.svc.evil.com", "a.svc.cluster.local.evil.com",
		"xsvc.com", "listproxy.listproxy", "10.1.2.3.4", "x.local",
	}
	expectCode := func(host, path string, want int) *httptest.ResponseRecorder {
		w := ask(port, http.MethodGet, path, func(r *http.Request) { r.Host = host })
		if w.Code != want {
			t.Errorf("%s with Host %q answers %d, want %d", path, host, w.Code, want)
		}
		return w
	}
	for _, path := range guardedPaths {
		for _, host := range allowed {
			expectCode(host, path, http.StatusOK)
		}
		for _, host := range refused {
			w := expectCode(host, path, http.StatusForbidden)
			expect.Says(t, w.Body.String(), "NAME.NAMESPACE.svc")
		}
	}
	for _, host := range slices.Concat(allowed, refused) {
		expectCode(host, "/livez", http.StatusOK)
		expectCode(host, "/readyz", http.StatusOK)
	}
}

// TestGuardEndsSlowReaders: a client that reads nothing of a long page loses its connection after guard's timeout.
func TestGuardEndsSlowReaders(t *testing.T) {
	ended := make(chan error)
	endlessPage := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				ended <- err
				return
			}
		}
	})
	const timeout = 100 * time.Millisecond
	var noHosts []string
	server := httptest.NewServer(guard(noHosts, timeout, endlessPage))
	defer server.Close()
	resp, err := server.Client().Get(server.URL)
	expect.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the page ends with %v, want %v", err, os.ErrDeadlineExceeded)
	}
}

// TestPort: each path of New gives the right answer. The headers of every answer keep a browser from storing or embedding it,
// and from taking it for another type.
func TestPort(t *testing.T) {
	port := newPort(t)
	expect.Says(t, contentPolicy, "default-src 'none'", "frame-ancestors 'none'")
	for _, tt := range []struct {
		method   string // empty: GET
		path     string
		wantCode int
		wantText string // a part of the body
	}{
		{path: "/", wantCode: http.StatusFound, wantText: "statusz"},
		{path: "/livez", wantCode: http.StatusOK, wantText: "ok"},
		{path: "/metrics", wantCode: http.StatusOK, wantText: "up 1"},
		{path: "/statusz", wantCode: http.StatusOK, wantText: "✓ healthy"},
		{method: http.MethodPost, path: "/statusz", wantCode: http.StatusMethodNotAllowed},
		{path: "/flagz", wantCode: http.StatusOK, wantText: "listproxy flagz\n\nconfig=policy.yaml\nsecure-port=8443\n"},
		{path: "/api", wantCode: http.StatusNotFound},
		{path: "/debug/pprof/", wantCode: http.StatusOK, wantText: "goroutine"},
		{path: "/debug/pprof/goroutine?debug=1", wantCode: http.StatusOK, wantText: "goroutine profile:"},
		{path: "/debug/pprof/cmdline", wantCode: http.StatusOK, wantText: "admin.test"},
		{path: "/debug/pprof/symbol", wantCode: http.StatusOK, wantText: "num_symbols"},
		{path: "/debug/pprof/none", wantCode: http.StatusNotFound},
	} {
		method := cmp.Or(tt.method, http.MethodGet)
		w := ask(port, method, tt.path, func(*http.Request) {})
		if w.Code != tt.wantCode || !strings.Contains(w.Body.String(), tt.wantText) {
			t.Errorf("%s %s answers %d %q, want %d with %q", method, tt.path, w.Code, w.Body, tt.wantCode, tt.wantText)
		}
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "Content-Security-Policy": contentPolicy,
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s of %s is %q, want %q", name, tt.path, got, want)
			}
		}
	}
}

// TestProfilesAreLocal: only clients on the same machine get profiles, which take CPU.
func TestProfilesAreLocal(t *testing.T) {
	port := newPort(t)
	const allowed, forbidden = http.StatusOK, http.StatusForbidden
	for client, want := range map[string]int{
		"127.0.0.1:40000": allowed, "[::1]:40000": allowed, "[::ffff:127.0.0.1]:40000": allowed,
		"10.1.2.3:40000": forbidden, "[fd00::1]:40000": forbidden, "[::ffff:10.1.2.3]:40000": forbidden,
		"": forbidden, "localhost": forbidden, // no addresses
	} {
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"} {
			w := ask(port, http.MethodGet, path, func(r *http.Request) { r.RemoteAddr = client })
			if w.Code != want {
				t.Errorf("%s answers %d to the client %q, want %d", path, w.Code, client, want)
			}
		}
	}
}
