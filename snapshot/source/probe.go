package source

import (
	"sync/atomic"
	"time"
)

// Probe is one request of listproxy for the upstream's current revision, or for its newest state. A state that has reached
// the answer's revision has everything from before the probe was sent.
type Probe struct {
	// Number is the probe's number from [ProbeCounter].
	Number uint64
	// Sent is the time at which the probe was sent.
	Sent time.Time
}

// ProbeCounter numbers the probes of all collections of one upstream. The numbers order probes and callers' requests without
// a clock: if a request came when Last was n, every probe with a number above n was sent after the request came. A
// ProbeCounter is safe for concurrent use. The zero value is ready for use.
type ProbeCounter struct{ count atomic.Uint64 }

// beforeFirst is the value of Last before the first probe. It is not 0, since 0 stands for a request without a number.
const beforeFirst = 1

// Last returns the number of the last probe. It is never 0.
func (c *ProbeCounter) Last() uint64 { return c.count.Load() + beforeFirst }

// Next returns a probe with the next number. The caller must send it afterwards, not before.
func (c *ProbeCounter) Next() Probe {
	return Probe{Number: c.count.Add(1) + beforeFirst, Sent: time.Now()}
}
