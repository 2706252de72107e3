package watch

import (
	"sync"
	"time"
)

const (
	// minWatchLife is the shortest life of a watcher that the broadcaster ends: client-go lists again after a watch that
	// ended within a second without an event.
	minWatchLife = time.Second
	// endsPerSecond is the number of watchers that end in a second when states are lost, so that their clients do not
	// all come back at once.
	endsPerSecond = 200
	// maxEndSpread is the duration in which all watchers of a broadcaster end, however many they are.
	maxEndSpread = 10 * time.Second
)

// Pacer spreads the ends of the watchers of several broadcasters, and of forwarded watches: they often end for the same
// cause. It is safe for concurrent use; the zero value has planned nothing.
type Pacer struct {
	mu sync.Mutex
	// plannedUntil is the time at which the ends that are planned already are over.
	plannedUntil time.Time
}

// Plan plans the ends of a number of watches, endsPerSecond, to begin when the ends that are planned already are over. It
// returns the duration from now until the first end may come (after), and the duration over which to spread the ends
// (within), which is never 0. If the last end came later than longest from now, the ends are spread over longest from now
// on, at the same time as those that are planned already.
func (p *Pacer) Plan(now time.Time, watches int, longest time.Duration) (after, within time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	after = max(0, p.plannedUntil.Sub(now))
	duration := time.Duration(watches) * time.Second / endsPerSecond
	within = max(duration, minWatchLife) // not to end many small broadcasters each in a moment
	if after+within > longest {
		after = 0
		within = longest
		duration = longest
	}
	if end := now.Add(after + duration); end.After(p.plannedUntil) {
		p.plannedUntil = end
	}
	return after, max(within, 1)
}
