package admin

import (
	"slices"

	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// Readiness decides whether clients should come (docs/operations.md). Its functions must be safe for
// concurrent use and must not block.
type Readiness struct {
	// Draining says whether shutdown has begun.
	Draining func() bool
	// Discovery, Schemas and Servers say whether it is known what the API server serves, how custom
	// resources are defined, and which servers there are.
	Discovery, Schemas, Servers func() bool
	Upstream                    func() upstream.HealthStats
	// Eager says of each eager collection whether it is loaded.
	Eager func() []statusz.Check
}

// Checks returns one check for each thing that must be right, and whether all are.
func (r Readiness) Checks() (ok bool, checks []statusz.Check) {
	serving := statusz.Check{Name: "serving", OK: !r.Draining()}
	if !serving.OK {
		serving.Message = "draining"
	}
	checks = append([]statusz.Check{
		serving,
		{Name: "discovery", OK: r.Discovery()},
		{Name: "schemas", OK: r.Schemas()},
		{Name: "servers", OK: r.Servers()},
		upstreamReady(r.Upstream()),
	}, r.Eager()...)
	return !slices.ContainsFunc(checks, func(c statusz.Check) bool { return !c.OK }), checks
}

// upstreamReady says whether clients should come, by the state of the upstream: not if only this
// replica has the trouble, since other replicas may work. A trouble that all replicas share, like
// an account that was deleted, does not count: if all replicas were taken out, clients could not
// even connect, and would not be told why.
func upstreamReady(s upstream.HealthStats) statusz.Check {
	check := upstreamCheck(s)
	check.OK = !s.Own
	return check
}
