package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// adminRequest is one as a person sends it who has forwarded the port.
func adminRequest(method, target string) *http.Request {
	r := httptest.NewRequest(method, target, http.NoBody)
	r.Host = "localhost:8081"
	return r
}

// TestPort: what is where, and profiles only where they are asked for.
func TestPort(t *testing.T) {
	s, _, _ := newSource(t)
	config := Config{
		Ready: s.Ready, Status: s, Flags: []string{"config=policy.yaml", "secure-port=8443"},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "up 1") }),
	}
	profiling := config
	profiling.Profiling = true
	for _, tt := range []struct {
		config       Config
		method, path string
		code         int
		says         string
	}{
		{config, http.MethodGet, "/", 302, "statusz"},
		{config, http.MethodGet, "/livez", 200, "ok"},
		{config, http.MethodGet, "/metrics", 200, "up 1"},
		{config, http.MethodGet, "/statusz", 200, "✓ healthy"},
		{config, http.MethodPost, "/statusz", 405, ""},
		{config, http.MethodGet, "/flagz", 200, "listproxy flagz\n\nconfig=policy.yaml\nsecure-port=8443\n"},
		{config, http.MethodGet, "/api", 404, ""},
		{config, http.MethodGet, "/debug/pprof/", 404, ""},
		{config, http.MethodGet, "/debug/pprof/heap", 404, ""},
		{profiling, http.MethodGet, "/debug/pprof/", 200, "goroutine"},
		{profiling, http.MethodGet, "/debug/pprof/goroutine?debug=1", 200, "goroutine profile:"},
		{profiling, http.MethodGet, "/debug/pprof/cmdline", 200, "admin.test"},
		{profiling, http.MethodPost, "/debug/pprof/symbol", 200, "num_symbols"},
		{profiling, http.MethodGet, "/debug/pprof/none", 404, ""},
	} {
		w := httptest.NewRecorder()
		New(tt.config).ServeHTTP(w, adminRequest(tt.method, tt.path))
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.says) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, w.Code, w.Body)
		}
	}
}
