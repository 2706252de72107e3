package admin

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// newPort is a port with all pages.
func newPort(t *testing.T, hosts ...string) http.Handler {
	t.Helper()
	s, _, _ := newHealthySource(t)
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "up 1") })
	return New(Config{Source: s, Metrics: metrics, Hosts: hosts, Flags: []string{"config=policy.yaml", "secure-port=8443"}})
}

// ask is what a port answers to a person who has forwarded it (kubectl port-forward), or to whoever sends the
// request that change makes of it.
func ask(port http.Handler, method, target string, change func(*http.Request)) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, target, http.NoBody), httptest.NewRecorder()
	r.Host, r.RemoteAddr = "localhost:8081", "[::1]:40000"
	if change != nil {
		change(r)
	}
	port.ServeHTTP(w, r)
	return w
}

// guardedPaths are those that tell something.
var guardedPaths = []string{"/statusz", "/statusz?format=json", "/flagz", "/metrics", "/debug/pprof/", "/debug/pprof/cmdline"}

// TestAdminIsNotRebound: whoever owns a name in the DNS cannot read the admin port by letting it
// lead here, and all who may be meant to can.
func TestAdminIsNotRebound(t *testing.T) {
	port := newPort(t, "Listproxy.example.com", "10-0-0-1.pods.corp.test")
	for host, want := range map[string]int{
		"127.0.0.1:8081": 200, "10.1.2.3": 200, "[::1]:8081": 200, "[fd00::1]": 200, "[fe80::1%25eth0]:8081": 200, // a probe, Prometheus
		"localhost": 200, "LOCALHOST:8081": 200, "a.localhost:1": 200, // kubectl port-forward
		"listproxy-admin:8081": 200, "node-7": 200, // in the same namespace; a machine
		"listproxy-admin.listproxy.svc:8081": 200, "listproxy-admin.listproxy.svc.cluster.local.:8081": 200,
		"listproxy.example.com:8081": 200, "LISTPROXY.EXAMPLE.COM.": 200, "10-0-0-1.pods.corp.test": 200, // as named
		"": 200, // HTTP/1.0

		"evil.example.com": 403, "evil.example.com:8081": 403, "x.listproxy.example.com": 403,
		"localhost.evil.com": 403, "127.0.0.1.evil.com": 403, "a.svc.evil.com": 403, "a.svc.cluster.local.evil.com": 403,
		"xsvc.com": 403, "listproxy.listproxy": 403, "10.1.2.3.4": 403, "x.local": 403,
	} {
		byName := func(r *http.Request) { r.Host = host }
		for _, path := range guardedPaths {
			w := ask(port, http.MethodGet, path, byName)
			if w.Code != want {
				t.Errorf("%s by the name %q: %d, want %d", path, host, w.Code, want)
			}
			if want == 403 {
				expect.Says(t, w.Body.String(), "NAME.NAMESPACE.svc")
			}
		}
		for _, path := range []string{"/livez", "/readyz"} { // probes name what they like
			if w := ask(port, http.MethodGet, path, byName); w.Code != 200 {
				t.Errorf("%s by the name %q: %d", path, host, w.Code)
			}
		}
	}
}

// TestReadersAreBounded: more readers than there are places get 429 at once, probes are answered, and
// places come back.
func TestReadersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		s, _, _ := newHealthySource(t)
		port := New(Config{Source: s, Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })})
		get := func(path string) int { return ask(port, http.MethodGet, path, nil).Code }
		for range 16 {
			go get("/metrics")
		}
		synctest.Wait()
		for path, want := range map[string]int{"/metrics": 429, "/statusz": 429, "/livez": 200, "/readyz": 200} {
			if got := get(path); got != want {
				t.Errorf("one too many for %s gets %d, want %d", path, got, want)
			}
		}
		close(end)
		synctest.Wait()
		expect.Same(t, 200, get("/statusz"))
	})
}

// TestSlowReadersAreCutOff: who reads nothing of a long page loses the connection.
func TestSlowReadersAreCutOff(t *testing.T) {
	ended := make(chan error)
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				ended <- err
				return
			}
		}
	})
	server := httptest.NewServer(guard(nil, 1, 100*time.Millisecond, page))
	defer server.Close()
	resp, err := server.Client().Get(server.URL)
	expect.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// TestPort: what is where. No answer can be framed, embedded, kept or taken for another type.
func TestPort(t *testing.T) {
	port := newPort(t)
	for _, tt := range []struct {
		method, path string
		code         int
		says         string
	}{
		{method: http.MethodGet, path: "/", code: 302, says: "statusz"},
		{method: http.MethodGet, path: "/livez", code: 200, says: "ok"},
		{method: http.MethodGet, path: "/metrics", code: 200, says: "up 1"},
		{method: http.MethodGet, path: "/statusz", code: 200, says: "✓ healthy"},
		{method: http.MethodPost, path: "/statusz", code: 405},
		{method: http.MethodGet, path: "/flagz", code: 200, says: "listproxy flagz\n\nconfig=policy.yaml\nsecure-port=8443\n"},
		{method: http.MethodGet, path: "/api", code: 404},
		{method: http.MethodGet, path: "/debug/pprof/", code: 200, says: "goroutine"},
		{method: http.MethodGet, path: "/debug/pprof/goroutine?debug=1", code: 200, says: "goroutine profile:"},
		{method: http.MethodGet, path: "/debug/pprof/cmdline", code: 200, says: "admin.test"},
		{method: http.MethodGet, path: "/debug/pprof/symbol", code: 200, says: "num_symbols"},
		{method: http.MethodGet, path: "/debug/pprof/none", code: 404},
	} {
		w := ask(port, tt.method, tt.path, nil)
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.says) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, w.Code, w.Body)
		}
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "Content-Security-Policy": contentPolicy,
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q", tt.path, name, got)
			}
		}
	}
	expect.Says(t, contentPolicy, "default-src 'none'", "frame-ancestors 'none'")
}

// TestProfilesAreForTheMachine: a profile takes CPU, so nobody gets one from elsewhere.
func TestProfilesAreForTheMachine(t *testing.T) {
	port := newPort(t)
	for from, want := range map[string]int{
		"127.0.0.1:40000": 200, "[::1]:40000": 200, "[::ffff:127.0.0.1]:40000": 200,
		"10.1.2.3:40000": 403, "[fd00::1]:40000": 403, "[::ffff:10.1.2.3]:40000": 403, "": 403, "localhost": 403,
	} {
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"} {
			if w := ask(port, http.MethodGet, path, func(r *http.Request) { r.RemoteAddr = from }); w.Code != want {
				t.Errorf("%s from %q: %d, want %d", path, from, w.Code, want)
			}
		}
	}
}
