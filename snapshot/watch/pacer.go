package watch

import (
	"sync"
	"time"
)

const (
	// minWatchLife is the shortest life of a watcher that the broadcaster ends: client-go lists again after a watch that
	// ended within a second without an event.
	minWatchLife = time.Second
	// endsPerSecond is the number of watchers that end in a second when states are lost, so that their clients do not all
	// come back at once. maxEndSpread is the time in which all must have ended, however many they are.
	endsPerSecond = 200
	maxEndSpread  = 10 * time.Second
)

// Pacer spreads the ends of the watchers of several broadcasters, and of forwarded watches: they often end for the same
// cause. It is safe for concurrent use; the zero value has planned nothing.
type Pacer struct {
	mu sync.Mutex
	// planned is the time up to which ends are planned already.
	planned time.Time
}

// Plan plans the ends of a number of watches, endsPerSecond, to begin when those that are planned already are over. It
// returns the time from now until they begin (after), and the time over which to spread them (within). If all that
// would take longer than longest, they are spread over longest from now on, at the same time as the others.
func (p *Pacer) Plan(now time.Time, watches int, longest time.Duration) (after, within time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	after = max(0, p.planned.Sub(now))
	duration := time.Duration(watches) * time.Second / endsPerSecond
	within = max(duration, minWatchLife)
	if after+within > longest {
		after = 0
		within = longest
		duration = longest
	}
	if end := now.Add(after + duration); end.After(p.planned) {
		p.planned = end
	}
	return after, max(within, 1)
}
