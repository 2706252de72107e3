package snapshot

import (
	"maps"
	"sync"
	"time"
)

// CheckResult is what a self-check found.
type CheckResult string

const (
	// CheckAgrees means that what was compared is what the upstream says, to the last byte.
	CheckAgrees CheckResult = "agrees"
	// CheckMismatch means that it is not, twice. The collection was dropped and is loaded again.
	CheckMismatch CheckResult = "mismatch"
	// CheckInconclusive means that the upstream did not give the states to compare with.
	CheckInconclusive CheckResult = "inconclusive"
)

// CheckStats are what self-checks found of one resource in one representation, in the life of the
// process: also of collections that are gone.
type CheckStats struct {
	// At is the time at which the last check ended; zero if there was none.
	At time.Time
	// Result of the last check, at Revision.
	Result   CheckResult
	Revision uint64
	// Mismatches is the number of checks that found something wrong, and Mismatched when one last did; zero
	// if none did.
	Mismatches int
	Mismatched time.Time
}

// place is where a check begins: a key for each part of it. The zero value is the beginning.
type place struct{ Names, Bytes string }

// mismatchMemory is the time for which a mismatch is remembered: after a second one within this time the collection is
// forwarded for a while.
const mismatchMemory = time.Hour

// selfChecks are the results of all checks, by what was checked. The zero value is ready for use. It is safe for
// concurrent use.
type selfChecks struct {
	mu      sync.Mutex
	records map[CollectionKey]checkRecord
	results map[CheckResult]uint64
}

type checkRecord struct {
	CheckStats
	next place
	// pause is the time for which nothing was kept after the last mismatch.
	pause time.Duration
}

// stats are what was found of r.
func (m *selfChecks) stats(r CollectionKey) CheckStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[r].CheckStats
}

// next is where the next check of r begins.
func (m *selfChecks) next(r CollectionKey) place {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[r].next
}

// record takes in the result of a check that ended now. It returns how long nothing is to be kept of
// the resource, least at first: after a second mismatch in a short time the upstream may be writing
// the objects in other bytes each time.
func (m *selfChecks) record(r CollectionKey, result CheckResult, rev uint64, next place, now time.Time, least time.Duration) (pause time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records == nil {
		m.records, m.results = map[CollectionKey]checkRecord{}, map[CheckResult]uint64{}
	}
	rec := m.records[r]
	if result == CheckMismatch {
		if now.Sub(rec.Mismatched) <= mismatchMemory {
			pause = min(mismatchMemory, max(least, 2*rec.pause))
		}
		rec.Mismatches++
		rec.Mismatched, rec.pause = now, pause
	}
	rec.At, rec.Result, rec.Revision, rec.next = now, result, rev, next
	m.records[r] = rec
	m.results[result]++
	return pause
}

// totals returns how many checks had which result.
func (m *selfChecks) totals() map[CheckResult]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[CheckResult]uint64{CheckAgrees: 0, CheckMismatch: 0, CheckInconclusive: 0}
	maps.Copy(all, m.results)
	return all
}

// mismatched returns the results for everything that ever had a mismatch.
func (m *selfChecks) mismatched() map[CollectionKey]CheckStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[CollectionKey]CheckStats{}
	for r, rec := range m.records {
		if rec.Mismatches > 0 {
			found[r] = rec.CheckStats
		}
	}
	return found
}

// forget forgets what is gone, unless a check of it was a mismatch.
func (m *selfChecks) forget(gone func(CollectionKey) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.records, func(r CollectionKey, rec checkRecord) bool { return rec.Mismatches == 0 && gone(r) })
}
