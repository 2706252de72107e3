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

// restart drops a collection that differs from the upstream, bans it if banFor is not 0, and starts it again. While it is
// banned, by this or an earlier check, it is not started; the first request after the ban starts it.
func (c *Collections) restart(r *runningCollection, banFor time.Duration) {
	now := time.Now()
	scope := OfCollection(r.key)
	if banFor > 0 {
		c.mu.Lock()
		c.bans.add(scope, ban{until: now.Add(banFor), why: reason.Form})
		c.mu.Unlock()
	}
	c.recordChange(Change{At: now, Scope: scope.String(), Cause: CauseMismatch})
	c.drop(r, reason.Mismatch)
	_, _ = c.findOrStart(r.key)
}
