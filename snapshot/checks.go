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
	// mismatchWindow is how long after a mismatch another one bans the collection: the upstream may write its objects in
	// other bytes each time.
	mismatchWindow = time.Hour
	// mismatchBan is how long the collection is then forwarded. It is shorter than mismatchWindow, so that a mismatch soon
	// after the ban bans the collection again.
	mismatchBan = 30 * time.Minute
)

// Mismatches says how many mismatches self-checks have found under one key since the process started, and when the last.
type Mismatches struct {
	Count int
	Last  time.Time
}

// selfChecks has the results of all checks. The zero value is ready for use. It is safe for concurrent use.
type selfChecks struct {
	mu         sync.Mutex
	results    map[CheckResult]uint64
	mismatches map[CollectionKey]Mismatches
}

// record records the result of a check that ended now. It returns how long the collection must not be kept in memory; 0 if
// it may be kept.
func (s *selfChecks) record(key CollectionKey, result CheckResult, now time.Time) (ban time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.results == nil {
		s.results = map[CheckResult]uint64{}
		s.mismatches = map[CollectionKey]Mismatches{}
	}
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
func (s *selfChecks) totals() map[CheckResult]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[CheckResult]uint64{CheckAgrees: 0, CheckMismatch: 0, CheckInconclusive: 0}
	maps.Copy(all, s.results)
	return all
}

// allMismatches returns the mismatches by collection.
func (s *selfChecks) allMismatches() map[CollectionKey]Mismatches {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mismatches)
}
