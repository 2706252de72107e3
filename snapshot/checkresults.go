package snapshot

import (
	"maps"
	"sync"
	"time"
)

// CheckResult is the result of a self-check.
type CheckResult string

const (
	// CheckAgrees means that the compared pages have the upstream's bytes.
	CheckAgrees CheckResult = "agrees"
	// CheckMismatch means that a page differed twice. The collection was dropped and is loaded again.
	CheckMismatch CheckResult = "mismatch"
	// CheckInconclusive means that the upstream did not give the states to compare with.
	CheckInconclusive CheckResult = "inconclusive"
)

const (
	// A second mismatch within mismatchWindow bans the collection: the upstream probably writes its objects in other bytes
	// each time, so that to load it again does not help.
	mismatchWindow = time.Hour
	// mismatchBan is the duration of the ban: lists of the collection are forwarded meanwhile. It is shorter than
	// mismatchWindow, so that a mismatch soon after the ban bans the collection again.
	mismatchBan = 30 * time.Minute
)

// Mismatches has the number of mismatches that self-checks have found in collections with one key since the process started,
// and the time of the last one.
type Mismatches struct {
	Count int
	Last  time.Time
}

// checkResults counts the results of all self-checks. It is safe for concurrent use.
type checkResults struct {
	mu         sync.Mutex
	results    map[CheckResult]uint64
	mismatches map[CollectionKey]Mismatches
}

// newCheckResults returns the results of no checks.
func newCheckResults() *checkResults {
	return &checkResults{
		results:    map[CheckResult]uint64{CheckAgrees: 0, CheckMismatch: 0, CheckInconclusive: 0},
		mismatches: map[CollectionKey]Mismatches{},
	}
}

// record records the result of a check that ended now, and returns the ban that follows from it; 0 if none does.
func (s *checkResults) record(key CollectionKey, result CheckResult, now time.Time) (ban time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[result]++
	if result != CheckMismatch {
		return 0
	}
	earlier := s.mismatches[key]
	s.mismatches[key] = Mismatches{Count: earlier.Count + 1, Last: now}
	if earlier.Count > 0 && now.Sub(earlier.Last) <= mismatchWindow {
		return mismatchBan
	}
	return 0
}

// totals returns the number of checks by result.
func (s *checkResults) totals() map[CheckResult]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.results)
}

// allMismatches returns the mismatches by collection.
func (s *checkResults) allMismatches() map[CollectionKey]Mismatches {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mismatches)
}
