package main

import (
	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// ready says whether clients should come: everything eager is there, the end has not begun, and
// what is wrong with the upstream, if anything is, is not this replica's own fault
// (docs/operations.md).
func (a *app) ready() (bool, []statusz.Check) {
	checks := []statusz.Check{
		{Name: "serving", OK: !a.draining.Load(), Message: "draining"},
		{Name: "discovery", OK: a.cluster.Catalog.Ready()},
		{Name: "schemas", OK: a.cluster.Schemas.Ready()},
		{Name: "servers", OK: a.cluster.Servers.Ready()},
	}
	if checks[0].OK {
		checks[0].Message = ""
	}
	checks = append(checks, upstreamReady(a.health.Stats()))
	checks = append(checks, a.warmup.Checks()...)
	for _, c := range checks {
		if !c.OK {
			return false, checks
		}
	}
	return true, checks
}

// upstreamReady says whether clients should come, as far as the upstream goes: not if the fault is
// this replica's own, since other replicas may have what it has not. What all of them share, as an
// account that was deleted, is no reason: if all were taken out, clients would reach nobody, and
// not even be told why.
func upstreamReady(s upstream.HealthStats) statusz.Check {
	check := statusz.Check{Name: admin.UpstreamCheck, OK: !s.Own}
	if s.Condition != upstream.ConditionOK {
		check.Message = admin.UpstreamWords(s)
	}
	return check
}
