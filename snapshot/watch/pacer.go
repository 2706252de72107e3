package watch

import (
	"sync"
	"time"
)

const (
	// atLeast is the time for which a watcher lives at least if it is ended by the broadcaster: client-go relists
	// after a watch that ended within a second without an event.
	atLeast = time.Second
	// endsPerSecond is the number of watchers that end in a second when spans are lost, and longestEnd the
	// time in which all have ended, so that their clients do not all come back at once.
	endsPerSecond = 200
	longestEnd    = 10 * time.Second
)

// Pacer spreads the ends of the watchers of several broadcasters, and of watches that are forwarded: what makes one of
// them end often ends all. It is safe for concurrent use; the zero value has planned nothing.
type Pacer struct {
	mu sync.Mutex
	// planned is the time up to which there are endsPerSecond ends already.
	planned time.Time
}

// Plan returns the time at which the ends of so many watches begin (after), and over how long they are spread
// (within): behind the ends that are planned already, [endsPerSecond]. If that would take longer
// than longest, they are spread over longest, at the same time as the others.
func (p *Pacer) Plan(now time.Time, watches int, longest time.Duration) (after, within time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	after = max(0, p.planned.Sub(now))
	takes := time.Duration(watches) * time.Second / endsPerSecond
	if within = max(takes, atLeast); after+within > longest {
		after, within, takes = 0, longest, longest
	}
	if end := now.Add(after + takes); end.After(p.planned) {
		p.planned = end
	}
	return after, max(within, 1)
}
