package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/telemetry/statusz"
)

// TestAdminPages: what was not asked for is not there.
func TestAdminPages(t *testing.T) {
	ready := func() (bool, []statusz.Check) { return true, nil }
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writePlain(w, http.StatusOK, "a page") })
	flags := func() []statusz.Flag {
		return []statusz.Flag{{Name: "config", Value: "policy.yaml", Set: true}, {Name: "secure-port", Value: "8443"}}
	}
	for _, tt := range []struct {
		pages        Pages
		method, path string
		code         int
		says         string
	}{
		{Pages{}, http.MethodGet, "/statusz", 404, ""},
		{Pages{}, http.MethodGet, "/flagz", 404, ""},
		{Pages{Status: page, Flags: flags}, http.MethodGet, "/debug/pprof/", 404, ""},
		{Pages{Status: page, Flags: flags}, http.MethodGet, "/debug/pprof/heap", 404, ""},
		{Pages{Status: page}, http.MethodGet, "/statusz", 200, "a page"},
		{Pages{Status: page}, http.MethodPost, "/statusz", 405, ""},
		{Pages{Flags: flags}, http.MethodGet, "/flagz", 200, "listproxy flagz\n\nconfig=policy.yaml\nsecure-port=8443\n"},
		{Pages{Profiling: true}, http.MethodGet, "/debug/pprof/", 200, "goroutine"},
		{Pages{Profiling: true}, http.MethodGet, "/debug/pprof/goroutine?debug=1", 200, "goroutine profile:"},
		{Pages{Profiling: true}, http.MethodGet, "/debug/pprof/cmdline", 200, "admin.test"},
		{Pages{Profiling: true}, http.MethodPost, "/debug/pprof/symbol", 200, "num_symbols"},
		{Pages{Profiling: true}, http.MethodGet, "/debug/pprof/none", 404, ""},
	} {
		w := httptest.NewRecorder()
		New(ready, page, tt.pages).ServeHTTP(w, adminRequest(tt.method, tt.path))
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.says) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, w.Code, w.Body)
		}
	}
}
