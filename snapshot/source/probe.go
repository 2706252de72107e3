package source

import (
	"sync/atomic"
	"time"
)

// Probe is a request for the upstream's current revision, or for its newest state. It shows how new a state is.
type Probe struct {
	// Number is the number that [ProbeNumbers] gave the probe.
	Number uint64
	// Sent is the time at which it was sent.
	Sent time.Time
}

// ProbeNumbers numbers the probes of all collections of one upstream in the order in which they are sent. A caller's
// request that read Last when it came is later than all probes up to that number, and earlier than all others. So no
// clock is needed. The zero value is ready for use, and safe for concurrent use.
type ProbeNumbers struct{ sent atomic.Uint64 }

// Last returns the number of the last probe that was sent; 1 if there was none. It is never 0.
func (n *ProbeNumbers) Last() uint64 { return n.sent.Load() + 1 }

// Next returns a probe with the next number, which must be sent now.
func (n *ProbeNumbers) Next() Probe { return Probe{Number: n.sent.Add(1) + 1, Sent: time.Now()} }
