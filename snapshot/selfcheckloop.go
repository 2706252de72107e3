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
	banned := c.recordCheck(r, compared.revision, err)
	if source.IsMismatch(err) {
		c.restart(r, banned)
	}
}

// restart drops a collection that differs from the upstream, and starts it again at once if banned is 0. Otherwise the
// collection is banned for that duration, and the first request after the ban starts it.
func (c *Collections) restart(r *runningCollection, banned time.Duration) {
	now := time.Now()
	scope := OfCollection(r.key)
	if banned > 0 { // otherwise a ban by an earlier check stays
		c.mu.Lock()
		c.bans.add(scope, ban{until: now.Add(banned), why: reason.Form})
		c.mu.Unlock()
	}
	c.recordChange(Change{At: now, Scope: scope.String(), Cause: CauseMismatch})
	c.drop(r, reason.Mismatch)
	_, _ = c.start(r.key) // refused during a ban
}
