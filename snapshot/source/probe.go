package source

import (
	"sync/atomic"
	"time"
)

// Probe is a request that shows how new the state is: for the upstream's current revision, or for
// its newest state.
type Probe struct {
	// Number is the probe's, as [ProbeNumbers] gives it.
	Number uint64
	// Sent is the time at which it was sent.
	Sent time.Time
}

// ProbeNumbers numbers the probes of all collections of one upstream, in the order in which they are
// sent. So a request that has read Last when it came is younger than all probes up to that number,
// whatever it asks for, and older than all later ones: no clock is needed to tell. The zero value
// is ready, and safe for concurrent use.
type ProbeNumbers struct{ sent atomic.Uint64 }

// Last is the number of the last probe that was sent, 1 if there was none. It is never 0.
func (n *ProbeNumbers) Last() uint64 { return n.sent.Load() + 1 }

// Next numbers a probe that is about to be sent.
func (n *ProbeNumbers) Next() Probe { return Probe{Number: n.sent.Add(1) + 1, Sent: time.Now()} }
