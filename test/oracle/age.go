package oracle

import (
	"sort"
	"sync"
	"time"
)

// Tolerance is how much more than the bound a state may be behind. Nothing is needed for listproxy: it counts from before it
// asked the API server how far it was, until it answers; a write is noted after it was confirmed; and behind is what a state was
// before the request was sent.
const Tolerance = time.Second

// TooOld reports whether a state may not be given as the newest one, with a --staleness-bound, that the API server had left so long
// before the request was sent.
func TooOld(behind, bound time.Duration) bool { return behind > bound+Tolerance }

// Ledger is what was written when, in one past of etcd: revisions only rise. The zero Ledger is empty. Safe for concurrent use.
type Ledger struct {
	mu sync.Mutex
	// steps are the writes that were confirmed before any of a higher revision, in the order of both.
	steps []step
}

type step struct {
	revision uint64
	at       time.Time
}

// Confirmed notes a write, of whatever, that the API server has confirmed just now.
func (l *Ledger) Confirmed(revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.steps) == 0 || revision > l.steps[len(l.steps)-1].revision {
		l.steps = append(l.steps, step{revision, time.Now()})
	}
}

// Newest is the highest revision that was confirmed, or 0.
func (l *Ledger) Newest() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.steps) == 0 {
		return 0
	}
	return l.steps[len(l.steps)-1].revision
}

// Behind says for how long the API server had been past a revision at a time: since a write of a higher one was
// confirmed. 0 if there was none.
func (l *Ledger) Behind(revision uint64, asked time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := sort.Search(len(l.steps), func(i int) bool { return l.steps[i].revision > revision })
	if next == len(l.steps) {
		return 0
	}
	return max(0, asked.Sub(l.steps[next].at))
}
