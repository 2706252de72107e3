package snapshot

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
)

const (
	// checkPages is the number of pages that one check compares at most, and checkTimeout bounds the check.
	checkPages   = 8
	checkTimeout = 2 * time.Minute
)

// SelfChecks returns the number of checks by result.
func (c *Collections) SelfChecks() map[CheckResult]uint64 { return c.checks.totals() }

// Mismatches returns the mismatches of each collection in which a self-check has found a difference since the process
// started, even if that collection is gone.
func (c *Collections) Mismatches() map[CollectionKey]Mismatches { return c.checks.allMismatches() }

// selfCheck checks the collections one after the other, each about once per interval.
func (c *Collections) selfCheck(interval time.Duration) {
	for {
		pause := interval / time.Duration(max(1, len(c.list())))
		if !clock.Sleep(c.ctx, pause/2+rand.N(pause)) { // random, so that replicas do not ask at the same time
			return
		}
		if r := c.longestUnchecked(); r != nil {
			c.check(r)
		}
	}
}

// longestUnchecked returns the collection whose last check is the longest ago; nil if no collection has a newest state
// that requests may get.
func (c *Collections) longestUnchecked() (found *running) {
	for _, r := range c.list() {
		_, unavailable := r.view.Load().latest(r.moment(), 0)
		if unavailable == reason.None && (found == nil || r.checkedAt.Before(found.checkedAt)) {
			found = r
		}
	}
	return found
}

// check compares the next pages of a collection with the upstream. If they differ, the collection is dropped and loaded
// again.
func (c *Collections) check(r *running) {
	ctx, cancel := context.WithTimeout(c.ctx, checkTimeout)
	defer cancel()
	next, revision, err := c.compare(ctx, r, r.nextCheck, checkPages, time.Now())
	if c.ctx.Err() != nil {
		return
	}
	r.checkedAt = time.Now()
	r.nextCheck = next
	ban := c.recordCheck(r, revision, err)
	if source.IsMismatch(err) {
		c.restart(r, ban)
	}
}

// recordCheck records and logs the result of a check at a revision. It returns the time for which the collection must
// not be kept after a mismatch.
func (c *Collections) recordCheck(r *running, revision uint64, err error) (ban time.Duration) {
	log := c.config.Log.With("collection", r.resource.String(), "revision", revision)
	result := CheckAgrees
	switch {
	case err == nil:
		log.Debug("self-check: agrees")
	case source.IsMismatch(err):
		result = CheckMismatch
		log.Error("self-check: what is kept is not what the upstream says, it is dropped", "error", err)
	default:
		result = CheckInconclusive
		log.Info("self-check: no verdict", "error", err)
	}
	return c.checks.record(r.resource, result, time.Now())
}

// restart drops a collection after a mismatch, and starts another in its place when the ban is over: at once with 0.
func (c *Collections) restart(r *running, ban time.Duration) {
	scope := OfCollection(r.resource)
	c.mu.Lock()
	c.bans[scope] = time.Now().Add(ban)
	c.mu.Unlock()
	lastUse := r.lastUse.Load()
	c.Invalidate(Invalidation{Cause: CauseMismatch, Scope: scope})
	if successor, refusal := c.start(r.resource); refusal == reason.None {
		successor.lastUse.Store(lastUse) // its start counts as no use
	}
}
