package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

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
