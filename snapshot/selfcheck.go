package snapshot

import (
	"maps"
	"math/rand/v2"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
)

// CheckResult is the result of a self-check.
type CheckResult string

const (
	// CheckAgrees means that the compared pages have the upstream's bytes.
	CheckAgrees CheckResult = "agrees"
	// CheckMismatch means that a page differed twice: it was compared again after a pause. The collection was dropped.
	CheckMismatch CheckResult = "mismatch"
	// CheckInconclusive means that there is no verdict, for example because the upstream gave no page to compare with.
	CheckInconclusive CheckResult = "inconclusive"
)

const (
	// checkPages is the largest number of pages that one self-check compares.
	checkPages = 8
	// mismatchWindow is the time within which a second mismatch counts as repeated. A self-check then bans the collection: the
	// upstream probably writes the objects in other bytes each time, so another load would not help.
	mismatchWindow = time.Hour
	// mismatchBan is the duration of the ban, in which lists of the collection are forwarded. It is shorter than
	// mismatchWindow, so that a mismatch soon after the ban leads to another ban.
	mismatchBan = 30 * time.Minute
)

// MismatchStats counts the mismatches that were found in the collections with one key since the process started.
type MismatchStats struct {
	Count int
	// Last is the time of the last mismatch.
	Last time.Time
}

// selfCheckLoop checks the collections one after the other, each about once per interval, until Collections is closed.
func (c *Collections) selfCheckLoop(interval time.Duration) {
	for {
		pause := interval / time.Duration(max(1, len(c.list())))
		if !clock.Sleep(c.ctx, pause/2+rand.N(pause)) { // random, so that replicas do not ask at the same time
			return
		}
		if r := c.longestUnchecked(); r != nil {
			c.selfCheck(r)
		}
	}
}

// longestUnchecked returns the collection whose last self-check is the longest ago, of those whose newest state may be given to
// requests. It returns nil if there is none.
func (c *Collections) longestUnchecked() (found *runningCollection) {
	for _, r := range c.list() {
		_, unavailable := r.view.Load().latest(r.now(), anyRevision)
		isEarlier := found == nil || r.checkedAt.Before(found.checkedAt)
		if unavailable == reason.None && isEarlier {
			found = r
		}
	}
	return found
}

// selfCheck compares the next pages of a collection with the upstream, from the page at which the last self-check ended. If
// they differ, the collection is restarted.
func (c *Collections) selfCheck(r *runningCollection) {
	compared, err := c.comparePages(r, r.checkFrom, checkPages, time.Now())
	if c.ctx.Err() != nil {
		return
	}
	r.checkedAt = time.Now()
	r.checkFrom = compared.next
	isRepeated := c.recordCheck(r, compared.revision, err)
	if isRepeated {
		c.ban(OfCollection(r.key), mismatchBan, reason.Form)
	}
	if source.IsMismatch(err) {
		c.restart(r)
	}
}

// recordCheck logs and counts the result of a comparison at a revision. It reports whether the result is a repeated mismatch:
// the second one within mismatchWindow.
func (c *Collections) recordCheck(r *runningCollection, revision uint64, err error) (isRepeated bool) {
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

// countCheck counts the result of a check that ended now. It reports whether the result is a repeated mismatch.
func (c *Collections) countCheck(key CollectionKey, result CheckResult, now time.Time) (isRepeated bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkResults[result]++
	if result != CheckMismatch {
		return false
	}
	earlier := c.mismatches[key]
	c.mismatches[key] = MismatchStats{Count: earlier.Count + 1, Last: now}
	return earlier.Count > 0 && now.Sub(earlier.Last) <= mismatchWindow
}

// restart drops a collection that differs from the upstream, and starts it again. If the collection is banned, the first
// request after the ban starts it.
func (c *Collections) restart(r *runningCollection) {
	c.drop(r, reason.Mismatch)
	_, _ = c.findOrStart(r.key) // refused during a ban
}

// SelfChecks returns the number of self-checks by result.
func (c *Collections) SelfChecks() map[CheckResult]uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return maps.Clone(c.checkResults)
}

// Mismatches returns the MismatchStats of each key that has had any, even if its collection is gone.
func (c *Collections) Mismatches() map[CollectionKey]MismatchStats {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return maps.Clone(c.mismatches)
}
