package snapshot

import (
	"cmp"
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
)

const (
	// tidyInterval is the interval at which the janitor works.
	tidyInterval = time.Second
	// minIdleToDrop is how long a collection must have been idle to be dropped to free memory.
	minIdleToDrop = time.Minute
)

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
		isIdle := c.config.Idle > 0 && r.idleFor(now) > c.config.Idle
		if isIdle && !c.isEager(r) {
			c.drop(r, reason.Warming, reason.None)
		}
	}
	c.shortenHistories()
	c.dropIdlest(now)
}

// shortenHistories halves the history of one collection after the other until a tenth of the limit is free.
func (c *Collections) shortenHistories() {
	for _, r := range c.list() {
		if c.shared.budget.crowded() {
			r.trimHalf()
		}
	}
}

// dropIdlest drops the collection that has been idle for longest, if less than a tenth of the limit is free. Collections that
// are eager or were used within minIdleToDrop stay.
func (c *Collections) dropIdlest(now time.Time) {
	if !c.shared.budget.crowded() {
		return
	}
	idle := slices.DeleteFunc(c.list(), func(r *runningCollection) bool { return c.isEager(r) || r.idleFor(now) < minIdleToDrop })
	if len(idle) > 0 {
		idlest := slices.MaxFunc(idle, func(a, b *runningCollection) int { return cmp.Compare(a.idleFor(now), b.idleFor(now)) })
		c.drop(idlest, reason.Memory, reason.Memory)
	}
}

// drop removes a collection, stops its feed and forgets its state. Requests that still hold the collection get the reason
// why. A state that is lost counts under the cause loss; with None, as for an idle collection, it does not count.
func (c *Collections) drop(r *runningCollection, why, loss reason.Reason) {
	c.mu.Lock()
	if c.all[r.key] == r {
		delete(c.all, r.key)
	}
	c.mu.Unlock()
	hadState := r.retire(why)
	if hadState && loss != reason.None {
		r.counts.addLoss(loss)
	}
	r.stop()
	cause := cmp.Or(loss, "idle") // None is the empty reason
	c.config.Log.Info("collection ended",
		"collection", r.key.String(), "reason", cause, "idle", r.idleFor(time.Now()).Round(time.Second))
}
