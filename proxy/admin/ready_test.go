package admin

import (
	"testing"

	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// TestReadiness: each thing by itself keeps clients away, and is named.
func TestReadiness(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	eager := func(loaded bool) func() []statusz.Check {
		return func() []statusz.Check { return []statusz.Check{{Name: "collection/pods", OK: loaded}} }
	}
	health := func(own bool) func() upstream.HealthStats {
		return func() upstream.HealthStats {
			return upstream.HealthStats{Condition: upstream.ConditionUnauthorized, Own: own}
		}
	}
	for name, change := range map[string]func(*Readiness){
		"":                func(*Readiness) {},
		"serving":         func(r *Readiness) { r.Draining = yes },
		"discovery":       func(r *Readiness) { r.Discovery = no },
		"schemas":         func(r *Readiness) { r.Schemas = no },
		"servers":         func(r *Readiness) { r.Servers = no },
		"upstream":        func(r *Readiness) { r.Upstream = health(true) },
		"collection/pods": func(r *Readiness) { r.Eager = eager(false) },
	} {
		r := Readiness{Draining: no, Discovery: yes, Schemas: yes, Servers: yes, Upstream: health(false), Eager: eager(true)}
		change(&r)
		ok, checks := r.Checks()
		var failed string
		for _, c := range checks {
			if !c.OK {
				failed += c.Name
			}
		}
		if ok != (name == "") || failed != name || len(checks) != 6 {
			t.Errorf("%s: %t, %+v", name, ok, checks)
		}
	}
}
