package snapshot

import (
	"maps"
	"sync"
	"time"
)

// CheckResult is the result of a self-check.
type CheckResult string

const (
	// CheckAgrees means that the compared part has the upstream's bytes.
	CheckAgrees CheckResult = "agrees"
	// CheckMismatch means that it differed, twice. The collection was dropped and is loaded again.
	CheckMismatch CheckResult = "mismatch"
	// CheckInconclusive means that the upstream did not give the states to compare with.
	CheckInconclusive CheckResult = "inconclusive"
)

// CheckStats are the results of self-checks of the collections with one key since the process started.
type CheckStats struct {
	// At is the time at which the last check ended; zero if there was none.
	At time.Time
	// Result is the result of the last check.
	Result CheckResult
	// Mismatches is the number of checks that found a mismatch. Mismatched is the time of the last; zero if none did.
	Mismatches int
	Mismatched time.Time
}

// place has the keys at which the two parts of a check begin. The zero value is the beginning of the collection.
type place struct{ Names, Bytes string }

// mismatchMemory is the time within which a second mismatch of a collection makes it be forwarded for a while.
const mismatchMemory = time.Hour

// selfChecks are the results of all checks. The zero value is ready for use. It is safe for concurrent use.
type selfChecks struct {
	mu      sync.Mutex
	records map[CollectionKey]checkRecord
	results map[CheckResult]uint64
}

// checkRecord has the results of the checks of one collection.
type checkRecord struct {
	CheckStats
	next place
	// pause is the time for which the collection was not kept after the last mismatch.
	pause time.Duration
}

// stats returns the results for a collection.
func (m *selfChecks) stats(key CollectionKey) CheckStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[key].CheckStats
}

// next returns the place at which the next check of a collection begins.
func (m *selfChecks) next(key CollectionKey) place {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[key].next
}

// record records the result of a check that ended now. After a second mismatch in a short time, it returns the time for
// which the collection must not be kept: first minPause, then ever more. The upstream may write the objects in other
// bytes each time.
func (m *selfChecks) record(
	key CollectionKey, result CheckResult, next place, now time.Time, minPause time.Duration,
) (pause time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records == nil {
		m.records = map[CollectionKey]checkRecord{}
		m.results = map[CheckResult]uint64{}
	}
	rec := m.records[key]
	if result == CheckMismatch {
		if now.Sub(rec.Mismatched) <= mismatchMemory {
			pause = min(mismatchMemory, max(minPause, 2*rec.pause))
		}
		rec.Mismatches++
		rec.Mismatched = now
		rec.pause = pause
	}
	rec.At = now
	rec.Result = result
	rec.next = next
	m.records[key] = rec
	m.results[result]++
	return pause
}

// totals returns the number of checks by result.
func (m *selfChecks) totals() map[CheckResult]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[CheckResult]uint64{CheckAgrees: 0, CheckMismatch: 0, CheckInconclusive: 0}
	maps.Copy(all, m.results)
	return all
}

// mismatched returns the results for all collections that ever had a mismatch.
func (m *selfChecks) mismatched() map[CollectionKey]CheckStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[CollectionKey]CheckStats{}
	for key, rec := range m.records {
		if rec.Mismatches > 0 {
			found[key] = rec.CheckStats
		}
	}
	return found
}

// forget forgets the results for collections that are gone, unless one was a mismatch.
func (m *selfChecks) forget(gone func(CollectionKey) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.records, func(key CollectionKey, rec checkRecord) bool { return rec.Mismatches == 0 && gone(key) })
}
