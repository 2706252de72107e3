package admin

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/listproxy/listproxy/telemetry/statusz"
)

func TestAdmin(t *testing.T) {
	good := statusz.Check{Name: "upstream", OK: true}
	told := statusz.Check{Name: "reviews", OK: true, Message: "3 a second"}
	bad := statusz.Check{Name: "feeds", Message: "pods is warming"}
	bare := statusz.Check{Name: "clock"}
	tests := map[string]struct {
		method, target string
		ok             bool
		details        []statusz.Check
		code           int
		body           string
	}{
		"alive":                {target: "/livez", code: 200, body: "ok"},
		"ready":                {target: "/readyz", ok: true, details: []statusz.Check{good, told}, code: 200, body: "ok"},
		"ready, verbose":       {target: "/readyz?verbose", ok: true, details: []statusz.Check{good, told}, code: 200, body: "[+]upstream ok\n[+]reviews ok: 3 a second\nok"},
		"not ready":            {target: "/readyz", details: []statusz.Check{good, bad, bare}, code: 503, body: "[-]feeds not ready: pods is warming\n[-]clock not ready\nnot ready"},
		"not ready, verbose":   {target: "/readyz?verbose=1", details: []statusz.Check{good, bad}, code: 503, body: "[+]upstream ok\n[-]feeds not ready: pods is warming\nnot ready"},
		"no reason given":      {target: "/readyz", code: 503, body: "not ready"},
		"ready with a blemish": {target: "/readyz", ok: true, details: []statusz.Check{bad}, code: 200, body: "ok"},
		"metrics":              {target: "/metrics", code: 200, body: "up 1"},
		"another path":         {target: "/api", code: 404, body: "404 page not found\n"},
		"another method":       {method: http.MethodPost, target: "/livez", code: 405, body: "Method Not Allowed\n"},
	}
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writePlain(w, http.StatusOK, "up 1") })
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			admin := New(func() (bool, []statusz.Check) { return test.ok, test.details }, metrics, Pages{})
			w := httptest.NewRecorder()
			admin.ServeHTTP(w, adminRequest(test.method, test.target))
			if w.Code != test.code || w.Body.String() != test.body {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body.String(), test.code, test.body)
			}
		})
	}
}

// adminRequest is one as a person sends it who has forwarded the port.
func adminRequest(method, target string) *http.Request {
	r := httptest.NewRequest(method, target, http.NoBody)
	r.Host = "localhost:8081"
	return r
}
