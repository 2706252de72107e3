package watch

import (
	"sync"
	"time"
)

// Pacer spreads the ends of the watches of several broadcasters, since many often end for the same cause. It is safe for
// concurrent use. The zero value is ready for use.
type Pacer struct {
	mu sync.Mutex
	// plannedUntil is the time of the last planned end.
	plannedUntil time.Time
}

// endsPerSecond is the rate at which watches end, so that their clients do not all come back at once.
const endsPerSecond = 200

// minEndSpread is the shortest spread of a plan, unless Plan's atMost is shorter. So even a few watches do not end at the same
// moment.
const minEndSpread = time.Second

// Plan plans the ends of watches, at endsPerSecond (200), after all ends that were planned before. delay is the time until the
// first end. spread is the time over which the caller must spread the ends; it is never 0. If the last end would be later than
// atMost from now, the ends do not wait for those planned before: a higher rate is better than a watch that ends too late.
// Examples, with all times counted from now:
//
//	watches  atMost  planned before  delay  spread
//	400      10 s    nothing         0      2 s     400 ends at 200 per second
//	400      10 s    until 2 s       2 s    2 s
//	10       10 s    until 2 s       2 s    1 s     minEndSpread, though 10 ends take 0.05 s: the next delay is 2.05 s
//	400      10 s    until 9 s       0      10 s    does not wait: 9 s + 2 s would be too late
func (p *Pacer) Plan(now time.Time, watches int, atMost time.Duration) (delay, spread time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delay = max(0, p.plannedUntil.Sub(now))
	// reserved is the time that the ends take at endsPerSecond. The next plan begins after it. A plan for few watches has a
	// longer spread, and so overlaps with the next plan.
	reserved := time.Duration(watches) * time.Second / endsPerSecond
	spread = max(reserved, minEndSpread)
	if delay+spread > atMost {
		delay = 0
		spread = atMost
		reserved = atMost
	}
	if end := now.Add(delay + reserved); end.After(p.plannedUntil) {
		p.plannedUntil = end
	}
	return delay, max(spread, 1) // The caller passes spread to rand.N, which panics for 0.
}
