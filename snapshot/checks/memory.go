package checks

import (
	"maps"
	"sync"
	"time"
)

// Result is what a self-check found.
type Result string

const (
	// Agrees means that what was compared is what the upstream says, to the last byte.
	Agrees Result = "agrees"
	// Mismatch means that it is not, twice. The collection was dropped and is loaded again.
	Mismatch Result = "mismatch"
	// Inconclusive means that the upstream did not give the states to compare with.
	Inconclusive Result = "inconclusive"
)

// Stats are what self-checks found of one resource in one representation, in the life of the
// process: also of collections that are gone.
type Stats struct {
	// At is the time at which the last check ended; zero if there was none.
	At time.Time
	// Result of the last check, at Revision.
	Result   Result
	Revision uint64
	// Mismatches is the number of checks that found something wrong, and Mismatched when one last did; zero
	// if none did.
	Mismatches int
	Mismatched time.Time
}

// Place is where a check begins: a key for each part of it. The zero value is the beginning.
type Place struct{ Names, Bytes string }

// mismatchMemory is the time for which a mismatch is remembered: after a second one within this time the collection is
// forwarded for a while.
const mismatchMemory = time.Hour

// Memory remembers what was found, by what was checked. The zero value is ready for use. It is safe for
// concurrent use.
type Memory[R comparable] struct {
	mu      sync.Mutex
	of      map[R]record
	results map[Result]uint64
}

type record struct {
	Stats
	next Place
	// pause is the time for which nothing was kept after the last mismatch.
	pause time.Duration
}

// Stats are what was found of r.
func (m *Memory[R]) Stats(r R) Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[r].Stats
}

// Next is where the next check of r begins.
func (m *Memory[R]) Next(r R) Place {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[r].next
}

// Note takes in the result of a check that ended now. It returns how long nothing is to be kept of
// the resource, least at first: after a second mismatch in a short time the upstream may be writing
// the objects in other bytes each time.
func (m *Memory[R]) Note(r R, result Result, rev uint64, next Place, now time.Time, least time.Duration) (pause time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of, m.results = map[R]record{}, map[Result]uint64{}
	}
	rec := m.of[r]
	if result == Mismatch {
		if now.Sub(rec.Mismatched) <= mismatchMemory {
			pause = min(mismatchMemory, max(least, 2*rec.pause))
		}
		rec.Mismatches++
		rec.Mismatched, rec.pause = now, pause
	}
	rec.At, rec.Result, rec.Revision, rec.next = now, result, rev, next
	m.of[r] = rec
	m.results[result]++
	return pause
}

// Totals returns how many checks had which result.
func (m *Memory[R]) Totals() map[Result]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[Result]uint64{Agrees: 0, Mismatch: 0, Inconclusive: 0}
	maps.Copy(all, m.results)
	return all
}

// Mismatched returns the results for everything that ever had a mismatch.
func (m *Memory[R]) Mismatched() map[R]Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[R]Stats{}
	for r, rec := range m.of {
		if rec.Mismatches > 0 {
			found[r] = rec.Stats
		}
	}
	return found
}

// Forget forgets what is gone, unless a check of it was a mismatch.
func (m *Memory[R]) Forget(gone func(R) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.of, func(r R, rec record) bool { return rec.Mismatches == 0 && gone(r) })
}
