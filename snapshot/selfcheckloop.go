package snapshot

import (
	"math/rand/v2"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
)

// checkPages is the largest number of pages that one self-check compares.
const checkPages = 8

// SelfChecks returns the number of self-checks by result.
func (c *Collections) SelfChecks() map[CheckResult]uint64 { return c.checkResults.totals() }

// Mismatches returns the mismatches of each collection in which a self-check has found a difference since the process
// started, even if that collection is gone.
func (c *Collections) Mismatches() map[CollectionKey]Mismatches {
	return c.checkResults.allMismatches()
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

// longestUnchecked returns the collection whose last check ended first, of those with a newest state that requests may get;
// nil if there is none.
func (c *Collections) longestUnchecked() (found *runningCollection) {
	for _, r := range c.list() {
		_, why := r.view.Load().latest(r.now(), 0)
		if why == reason.None && (found == nil || r.checkedAt.Before(found.checkedAt)) {
			found = r
		}
	}
	return found
}

// selfCheck compares the next pages of a collection with the upstream. If they differ, the collection is dropped and loaded
// again.
func (c *Collections) selfCheck(r *runningCollection) {
	compared, err := c.comparePages(r, r.checkFrom, checkPages, time.Now())
	if c.ctx.Err() != nil {
		return
	}
	r.checkedAt = time.Now()
	r.checkFrom = compared.next
	ban := c.recordCheck(r, compared.revision, err)
	if source.IsMismatch(err) {
		c.restart(r, ban)
	}
}

// recordCheck records and logs the result of a check at a revision. It returns the time for which the collection must not be
// started again; 0 if the check found no mismatch, or if the collection may be started at once.
func (c *Collections) recordCheck(r *runningCollection, revision uint64, err error) (ban time.Duration) {
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
	return c.checkResults.record(r.key, result, time.Now())
}

// restart drops a collection after a mismatch, and bans it. Without a ban (0) it starts another in its place at once; with
// one, the first request after the ban does.
func (c *Collections) restart(r *runningCollection, ban time.Duration) {
	scope := OfCollection(r.key)
	if ban > 0 { // else a ban by another check stays
		c.mu.Lock()
		c.bans.add(scope, time.Now().Add(ban))
		c.mu.Unlock()
	}
	c.Invalidate(Invalidation{Cause: CauseMismatch, Scope: scope})
	_, _ = c.start(r.key) // refused during a ban
}
