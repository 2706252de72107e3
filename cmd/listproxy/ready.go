package main

import (
	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// ready says whether clients should come: everything eager is loaded, shutdown has not begun, and
// nothing is wrong with the upstream that only this replica has (docs/operations.md).
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

// upstreamReady says whether clients should come, by the state of the upstream: not if only this
// replica has the trouble, since other replicas may work. A trouble that all replicas share, like
// an account that was deleted, does not count: if all replicas were taken out, clients could not
// even connect, and would not be told why.
func upstreamReady(s upstream.HealthStats) statusz.Check {
	check := statusz.Check{Name: admin.UpstreamCheck, OK: !s.Own}
	if s.Condition != upstream.ConditionOK {
		check.Message = admin.UpstreamWords(s)
	}
	return check
}
