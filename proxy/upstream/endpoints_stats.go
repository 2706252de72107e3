package upstream

import (
	"time"

	"github.com/listproxy/listproxy/telemetry"
)

// EndpointStats is what is known of one endpoint.
type EndpointStats struct {
	Address string
	// State is "unknown" before the first check, then "up", "not-ready", "slow" or "unreachable",
	// and Since the time at which it began.
	State string
	Since time.Time
	// Version is what it says of itself; empty: not heard.
	Version string
	// Connections are those that are open, without those of checks.
	Connections int64
	// Problem is why the last check did not find it up, without what looks like a credential;
	// empty: it did.
	Problem string
}

// Up reports whether new connections go there.
func (s EndpointStats) Up() bool { return s.State == string(endpointUp) }

// Meaning says in plain words what the state is.
func (s EndpointStats) Meaning() string { return endpointWords[endpointState(s.State)].meaning }

// Stats returns what is known of all; nothing where there are none.
func (e *Endpoints) Stats() []EndpointStats {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var stats []EndpointStats
	for _, ep := range e.all {
		s := EndpointStats{
			Address: ep.address, State: string(ep.state), Since: ep.since,
			Connections: ep.traffic.open.Load(),
		}
		if ep.said != nil {
			s.Version = ep.said.GitVersion
		}
		if ep.problem != nil {
			s.Problem = telemetry.MaskText(ep.problem.Error())
		}
		stats = append(stats, s)
	}
	return stats
}
