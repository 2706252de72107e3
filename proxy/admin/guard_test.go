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

// guardedAdmin has all pages.
func guardedAdmin(t *testing.T, hosts ...string) http.Handler {
	t.Helper()
	s, _, _ := newSource(t)
	said := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "said") })
	return New(Config{Ready: s.Ready, Metrics: said, Status: s, Hosts: hosts})
}

// guardedPaths are those that tell something.
var guardedPaths = []string{"/statusz", "/statusz?format=json", "/flagz", "/metrics", "/debug/pprof/", "/debug/pprof/cmdline"}

// TestAdminIsNotRebound: whoever owns a name in the DNS cannot read the admin port by letting it
// lead here, and all who may be meant to can.
func TestAdminIsNotRebound(t *testing.T) {
	admin := guardedAdmin(t, "Listproxy.example.com", "10-0-0-1.pods.corp.test")
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
		for _, path := range guardedPaths {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host, r.RemoteAddr = host, "127.0.0.1:1"
			admin.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s by the name %q: %d, want %d", path, host, w.Code, want)
			}
			if want == 403 && !strings.Contains(w.Body.String(), "NAME.NAMESPACE.svc") {
				t.Errorf("what to do is not said: %s", w.Body)
			}
		}
		// Probes name what they like.
		for _, path := range []string{"/livez", "/readyz"} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = host
			if admin.ServeHTTP(w, r); w.Code != 200 {
				t.Errorf("%s by the name %q: %d", path, host, w.Code)
			}
		}
	}
}

// TestAdminHeaders: no answer can be framed, embedded, kept or taken for another type.
func TestAdminHeaders(t *testing.T) {
	admin := guardedAdmin(t)
	for _, path := range append([]string{"/livez", "/readyz", "/none"}, guardedPaths...) {
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, adminRequest(http.MethodGet, path))
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		if got := w.Header().Get("Content-Security-Policy"); !strings.Contains(got, "default-src 'none'") || !strings.Contains(got, "frame-ancestors 'none'") {
			t.Errorf("%s: Content-Security-Policy is %q", path, got)
		}
	}
}

// TestReadersAreBounded: more readers than there are places get 429 at once, probes are answered, and
// places come back.
func TestReadersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		s, _, _ := newSource(t)
		admin := New(Config{Ready: s.Ready, Status: s, Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })})
		ask := func(path string) int {
			w := httptest.NewRecorder()
			admin.ServeHTTP(w, adminRequest(http.MethodGet, path))
			return w.Code
		}
		for range 16 {
			go ask("/metrics")
		}
		synctest.Wait()
		for path, want := range map[string]int{"/metrics": 429, "/statusz": 429, "/livez": 200, "/readyz": 200} {
			if got := ask(path); got != want {
				t.Errorf("one too many for %s gets %d, want %d", path, got, want)
			}
		}
		close(end)
		synctest.Wait()
		expect.Same(t, 200, ask("/statusz"))
	})
}

// TestSlowReadersAreCutOff: who reads nothing of a long page loses the connection, and .
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

// adminRequest is one as a person sends it who has forwarded the port (kubectl port-forward).
func adminRequest(method, target string) *http.Request {
	r := httptest.NewRequest(method, target, http.NoBody)
	r.Host, r.RemoteAddr = "localhost:8081", "[::1]:40000"
	return r
}

// TestPort: what is where.
func TestPort(t *testing.T) {
	s, _, _ := newSource(t)
	config := Config{
		Ready: s.Ready, Status: s, Flags: []string{"config=policy.yaml", "secure-port=8443"},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "up 1") }),
	}
	for _, tt := range []struct {
		method, path string
		code         int
		says         string
	}{
		{http.MethodGet, "/", 302, "statusz"},
		{http.MethodGet, "/livez", 200, "ok"},
		{http.MethodGet, "/metrics", 200, "up 1"},
		{http.MethodGet, "/statusz", 200, "✓ healthy"},
		{http.MethodPost, "/statusz", 405, ""},
		{http.MethodGet, "/flagz", 200, "listproxy flagz\n\nconfig=policy.yaml\nsecure-port=8443\n"},
		{http.MethodGet, "/api", 404, ""},
		{http.MethodGet, "/debug/pprof/", 200, "goroutine"},
		{http.MethodGet, "/debug/pprof/goroutine?debug=1", 200, "goroutine profile:"},
		{http.MethodGet, "/debug/pprof/cmdline", 200, "admin.test"},
		{http.MethodPost, "/debug/pprof/symbol", 200, "num_symbols"},
		{http.MethodGet, "/debug/pprof/none", 404, ""},
	} {
		w := httptest.NewRecorder()
		New(config).ServeHTTP(w, adminRequest(tt.method, tt.path))
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.says) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, w.Code, w.Body)
		}
	}
}

// TestProfilesAreForTheMachine: a profile takes CPU, so nobody gets one from elsewhere.
func TestProfilesAreForTheMachine(t *testing.T) {
	port := guardedAdmin(t)
	for from, want := range map[string]int{
		"127.0.0.1:40000": 200, "[::1]:40000": 200, "[::ffff:127.0.0.1]:40000": 200,
		"10.1.2.3:40000": 403, "[fd00::1]:40000": 403, "[::ffff:10.1.2.3]:40000": 403, "": 403, "localhost": 403,
	} {
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"} {
			w, r := httptest.NewRecorder(), adminRequest(http.MethodGet, path)
			r.RemoteAddr = from
			if port.ServeHTTP(w, r); w.Code != want {
				t.Errorf("%s from %q: %d, want %d", path, from, w.Code, want)
			}
		}
	}
}
