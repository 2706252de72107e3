package watch

import (
	"sync"
	"time"
)

const (
	// minWatchLife is the shortest life of a watcher before the broadcaster ends it: client-go lists again after a
	// watch that ended within a second without an event.
	minWatchLife = time.Second
	// endsPerSecond is the rate at which watchers end when states are lost, so that their clients do not all come back at
	// once.
	endsPerSecond = 200
	// minEndSpread is the shortest time over which the ends of one broadcaster's watchers are spread, so that even a few
	// watchers do not all end at one moment.
	minEndSpread = time.Second
	// maxEndSpread is the longest time over which the ends of one broadcaster's watchers are spread, however many they are.
	maxEndSpread = 10 * time.Second
)

// Pacer spreads the ends of watches, those of several broadcasters and forwarded ones, since many often end for the same
// cause. It is safe for concurrent use. The zero value is ready for use.
type Pacer struct {
	mu sync.Mutex
	// plannedUntil is the time of the last planned end.
	plannedUntil time.Time
}

// Plan reserves time for the ends of some watches, at endsPerSecond, after all ends that were planned before. If the last
// end would then be later than within from now, the ends do not queue: they are spread over within, beginning now. Plan
// returns the delay until the first end, and the time over which the ends must be spread, which is never 0.
func (p *Pacer) Plan(now time.Time, watches int, within time.Duration) (delay, spread time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delay = max(0, p.plannedUntil.Sub(now))
	reserved := time.Duration(watches) * time.Second / endsPerSecond // It may be less than spread: small plans overlap.
	spread = max(reserved, minEndSpread)
	if delay+spread > within {
		delay = 0
		spread = within
		reserved = within
	}
	if end := now.Add(delay + reserved); end.After(p.plannedUntil) {
		p.plannedUntil = end
	}
	return delay, max(spread, 1) // The caller passes it to rand.N, which panics for 0.
}
