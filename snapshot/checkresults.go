package snapshot

import (
	"maps"
	"time"

	"github.com/listproxy/listproxy/snapshot/source"
)

// CheckResult is the result of a self-check.
type CheckResult string

const (
	// CheckAgrees means that the compared pages have the upstream's bytes.
	CheckAgrees CheckResult = "agrees"
	// CheckMismatch means that a page differed twice. The collection was dropped.
	CheckMismatch CheckResult = "mismatch"
	// CheckInconclusive means that there is no verdict, for example because the upstream gave no page to compare with.
	CheckInconclusive CheckResult = "inconclusive"
)

const (
	// A second mismatch within mismatchWindow bans the collection: the upstream probably writes the objects in other bytes
	// each time, so another load would not help.
	mismatchWindow = time.Hour
	// mismatchBan is the duration of the ban, in which lists of the collection are forwarded. It is shorter than
	// mismatchWindow, so that a mismatch soon after the ban leads to another ban.
	mismatchBan = 30 * time.Minute
)

// Mismatches counts the mismatches that were found in the collections with one key since the process started.
type Mismatches struct {
	Count int
	// Last is the time of the last mismatch.
	Last time.Time
}

// SelfChecks returns the number of self-checks by result.
func (c *Collections) SelfChecks() map[CheckResult]uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return maps.Clone(c.checkResults)
}

// Mismatches returns the Mismatches of each key that has had any, even if its collection is gone.
func (c *Collections) Mismatches() map[CollectionKey]Mismatches {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return maps.Clone(c.mismatches)
}

// recordCheck logs and counts the result of a comparison at a revision. After a mismatch it returns the duration for which
// the collection must be banned; otherwise 0.
func (c *Collections) recordCheck(r *runningCollection, revision uint64, err error) (banFor time.Duration) {
	log := c.config.Log.With("collection", r.key.String(), "revision", revision)
	result := CheckAgrees
	switch {
	case err == nil:
		log.Debug("self-check: agrees")
	case source.IsMismatch(err):
		result = CheckMismatch
		log.Error("self-check: what is kept is not what the upstream says, so the collection is dropped", "error", err)
	default:
		result = CheckInconclusive
		log.Info("self-check: no verdict", "error", err)
	}
	return c.countCheck(r.key, result, time.Now())
}

// countCheck counts the result of a check that ended now. It returns what recordCheck returns.
func (c *Collections) countCheck(key CollectionKey, result CheckResult, now time.Time) (banFor time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkResults[result]++
	if result != CheckMismatch {
		return 0
	}
	earlier := c.mismatches[key]
	c.mismatches[key] = Mismatches{Count: earlier.Count + 1, Last: now}
	if earlier.Count > 0 && now.Sub(earlier.Last) <= mismatchWindow {
		return mismatchBan
	}
	return 0
}
