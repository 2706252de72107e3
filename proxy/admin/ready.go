package admin

import (
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// UpstreamReady says whether clients should come, by the state of the upstream: not if only this
// replica has the trouble, since other replicas may work. A trouble that all replicas share, like
// an account that was deleted, does not count: if all replicas were taken out, clients could not
// even connect, and would not be told why.
func UpstreamReady(s upstream.HealthStats) statusz.Check {
	check := upstreamCheck(s)
	check.OK = !s.Own
	return check
}
