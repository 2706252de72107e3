package admin

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/proxy/upstream"
)

// TestReady: each thing by itself keeps clients away, and is named; with ?verbose all are. A trouble
// with the upstream that other replicas have, too, is named only.
func TestReady(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	health := func(own bool) func() upstream.HealthStats {
		return func() upstream.HealthStats {
			return upstream.HealthStats{Condition: upstream.ConditionUnauthorized, Problem: "401", Own: own}
		}
	}
	for name, tt := range map[string]struct {
		change  func(*Readiness)
		verbose string
		code    int
		body    string
	}{
		"ready":               {func(*Readiness) {}, "", 200, "ok"},
		"verbose":             {func(*Readiness) {}, "?verbose", 200, "[+]serving ok\n[+]discovery ok\n[+]schemas ok\n[+]servers ok\n[+]upstream ok\n[+]collection/pods ok\n" + "ok"},
		"draining":            {func(r *Readiness) { r.Draining = yes }, "", 503, "[-]serving not ready: draining\nnot ready"},
		"discovery":           {func(r *Readiness) { r.Discovery = no }, "", 503, "[-]discovery not ready: the API server has not said yet which resources it has: see whether it can be reached, and the log\nnot ready"},
		"schemas":             {func(r *Readiness) { r.Schemas = no }, "", 503, "[-]schemas not ready: the definitions of custom resources are not read yet: see whether the API server can be reached, and the log\nnot ready"},
		"servers":             {func(r *Readiness) { r.Servers = no }, "", 503, "[-]servers not ready: the API servers behind the upstream are not known yet: see whether it can be reached, and the log\nnot ready"},
		"own fault":           {func(r *Readiness) { r.Upstream = health(true) }, "", 503, "[-]upstream not ready: kube-apiserver is " + upstream.ConditionUnauthorized.Meaning() + " (401)\nnot ready"},
		"no fault of its own": {func(r *Readiness) { r.Upstream = health(false) }, "?verbose", 200, "[+]serving ok\n[+]discovery ok\n[+]schemas ok\n[+]servers ok\n[+]upstream ok: kube-apiserver is " + upstream.ConditionUnauthorized.Meaning() + " (401)\n[+]collection/pods ok\n" + "ok"},
		"loading": {func(r *Readiness) {
			r.Eager = func() []proxy.EagerStats { return []proxy.EagerStats{{Name: "pods", Waits: "warming"}} }
		}, "", 503, "[-]collection/pods not ready: warming\nnot ready"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := newSource(t)
			ready := s.Ready
			ready.Eager = func() []proxy.EagerStats { return []proxy.EagerStats{{Name: "pods"}} }
			tt.change(&ready)
			w := httptest.NewRecorder()
			New(Config{Ready: ready, Metrics: http.NotFoundHandler(), Status: s}).ServeHTTP(w, adminRequest(http.MethodGet, "/readyz"+tt.verbose))
			if w.Code != tt.code || w.Body.String() != tt.body {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body, tt.code, tt.body)
			}
		})
	}
}
