package freshness

import "time"

// Probe is a request that shows how new the state is: for the upstream's current revision, or for
// its newest state.
type Probe struct {
	// Number counts a collection's probes. It shows which requests came before a probe, independently
	// of clocks.
	Number uint64
	// Sent is when it was sent.
	Sent time.Time
}
