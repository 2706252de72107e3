package watch

import (
	"sync"
	"time"
)

const (
	// minWatchLife is how long a watcher lives at least before the broadcaster ends it: client-go lists again after a
	// watch that ended within a second without an event.
	minWatchLife = time.Second
	// endsPerSecond is the rate at which watchers end when states are lost, so that their clients do not all come back at
	// once.
	endsPerSecond = 200
	// minEndSpread is how long the ends of one broadcaster's watchers are spread at least, so that the watchers of each
	// of many small broadcasters do not end at one moment.
	minEndSpread = time.Second
	// maxEndSpread is how long the ends of one broadcaster's watchers may take, however many watchers there are.
	maxEndSpread = 10 * time.Second
)

// Pacer spreads the ends of the watchers of several broadcasters, and of forwarded watches: they often end for the same
// cause. It is safe for concurrent use. The zero value is ready for use.
type Pacer struct {
	mu sync.Mutex
	// plannedUntil is when the last planned end comes.
	plannedUntil time.Time
}

// Plan reserves time for the ends of some watches, at endsPerSecond: they begin when the ends that were planned before are
// over. If they would last longer than maxDelay from now, they are spread over maxDelay instead, beginning now, beside
// those that were planned before. Plan returns the delay until the first end, and the time over which the ends must be
// spread, which is never 0.
func (p *Pacer) Plan(now time.Time, watches int, maxDelay time.Duration) (delay, spread time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delay = max(0, p.plannedUntil.Sub(now))
	reserved := time.Duration(watches) * time.Second / endsPerSecond // may be less than spread: small plans overlap
	spread = max(reserved, minEndSpread)
	if delay+spread > maxDelay {
		delay = 0
		spread = maxDelay
		reserved = maxDelay
	}
	if end := now.Add(delay + reserved); end.After(p.plannedUntil) {
		p.plannedUntil = end
	}
	return delay, max(spread, 1) // maxDelay may be 0
}
