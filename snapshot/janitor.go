package snapshot

import (
	"cmp"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// tidyInterval is the interval at which the janitor works.
const tidyInterval = time.Second

// tidyLoop is the janitor: it tidies until Collections is closed.
func (c *Collections) tidyLoop() {
	for clock.Sleep(c.ctx, tidyInterval) {
		c.tidy(time.Now())
	}
}

// tidy trims histories, ends the watches of dead streams, drops idle collections, and keeps a tenth of the byte limit free.
func (c *Collections) tidy(now time.Time) {
	for _, r := range c.list() {
		r.trimByAge(now)
		if r.view.Load().isWatched() {
			r.Touch() // a watched collection is not idle
		}
		r.endWatchesIfStreamDead()
		isIdle := c.config.IdleTimeout > 0 && r.idleFor(now) > c.config.IdleTimeout
		if isIdle && !c.isEager(r) {
			c.drop(r, reason.None)
		}
	}
	c.shortenHistories()
	c.dropIdlest(now)
}

// drop removes a collection, stops its feed and forgets its state. A cause of None means that the collection was idle, which is
// not counted as a loss.
func (c *Collections) drop(r *runningCollection, cause reason.Reason) {
	c.mu.Lock()
	if c.all[r.key] == r {
		delete(c.all, r.key)
	}
	c.mu.Unlock()
	hadState := r.retire()
	if hadState && cause != reason.None {
		r.counts.addLoss(cause)
	}
	r.stop()
	c.config.Log.Info("collection ended", // None is the empty string
		"collection", r.key.String(), "reason", cmp.Or(cause, "idle"), "idle", r.idleFor(time.Now()).Round(time.Second))
}
