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
	// CheckMismatch means that a page differed, also when it was read again. The collection was dropped.
	CheckMismatch CheckResult = "mismatch"
	// CheckInconclusive means that there is no verdict, for example because the upstream gave no page to compare with.
	CheckInconclusive CheckResult = "inconclusive"
)

const (
	// checkPages is the largest number of pages that one self-check compares.
	checkPages = 8
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

// longestUnchecked returns the collection whose last check is the longest ago, among those whose newest state may be given to
// requests. It returns nil if there are none.
func (c *Collections) longestUnchecked() (found *runningCollection) {
	for _, r := range c.list() {
		_, why := r.view.Load().latest(r.now(), 0) // 0: at any revision
		if why == reason.None && (found == nil || r.checkedAt.Before(found.checkedAt)) {
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
	banFor := c.recordCheck(r, compared.revision, err)
	if source.IsMismatch(err) {
		c.restart(r, banFor)
	}
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

// countCheck counts the result of a check that ended now. After a second mismatch within mismatchWindow it returns mismatchBan, and
// otherwise 0.
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

// restart drops a collection that differs from the upstream. If banFor is 0, it starts the collection again at once. Otherwise it
// bans it for that time; the first request after the ban starts it.
func (c *Collections) restart(r *runningCollection, banFor time.Duration) {
	if banFor > 0 { // otherwise a ban by an earlier check stays
		c.mu.Lock()
		c.bans.add(OfCollection(r.key), ban{until: time.Now().Add(banFor), why: reason.Form})
		c.mu.Unlock()
	}
	c.drop(r, reason.Mismatch)
	_, _ = c.findOrStart(r.key)
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
