package source

import (
	"sync/atomic"
	"time"
)

// Probe identifies a request for the upstream's current revision, or for its newest state, that listproxy has sent. The
// answer to it shows how new a state is.
type Probe struct {
	// Number is the number that [ProbeNumbers] gave the probe.
	Number uint64
	// Sent is the time at which the probe was sent.
	Sent time.Time
}

// ProbeNumbers numbers the probes of all collections of one upstream in the order in which they are sent. A caller's
// request that read Last when it came is later than all probes up to that number, and earlier than all others: so requests
// and probes are ordered without a clock. The zero value is ready for use. It is safe for concurrent use.
type ProbeNumbers struct{ count atomic.Uint64 }

// Last returns the number of the last probe that was sent. The first probe has number 2: before it Last returns 1, and 0
// stands for a request without a number.
func (n *ProbeNumbers) Last() uint64 { return n.count.Load() + 1 }

// Next returns a probe with the next number. The caller must send it at once.
func (n *ProbeNumbers) Next() Probe { return Probe{Number: n.count.Add(1) + 1, Sent: time.Now()} }
