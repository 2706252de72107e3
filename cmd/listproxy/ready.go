package main

import (
	"github.com/listproxy/listproxy/proxy/admin"
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
	checks = append(checks, admin.UpstreamReady(a.health.Stats()))
	checks = append(checks, a.warmup.Checks()...)
	for _, c := range checks {
		if !c.OK {
			return false, checks
		}
	}
	return true, checks
}
