package snapshot

import (
	"cmp"
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// tidy cuts history, ends idle collections, and makes room at the byte bound, until Collections is
// closed.
func (c *Collections) tidy() {
	ticker := time.NewTicker(tidyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case now := <-ticker.C:
			for _, r := range c.list() {
				r.trim(now)
				r.endDeadWatches(now)
			}
			c.mu.Lock()
			c.bans.forget(now)
			c.mu.Unlock()
			c.endIdle(now)
			c.makeRoom(now)
		}
	}
}

// endIdle ends the collections that nobody has asked for during their idle timeout.
func (c *Collections) endIdle(now time.Time) {
	for _, r := range c.list() {
		if c.config.Idle > 0 && !c.isEager(r) && r.idle(now) > c.config.Idle {
			c.end(r, reason.Warming, reason.None)
		}
	}
}

// end drops a collection that nobody wants, or for which there is no room.
func (c *Collections) end(r *running, why, loss reason.Reason) {
	c.mu.Lock()
	if c.all[r.resource] == r {
		delete(c.all, r.resource)
	}
	c.mu.Unlock()
	c.giveUp(r, why, loss)
}

// giveUp stops a collection's feed and forgets what the collection knew. why is for requests, loss is counted
// if there was a state; None if nobody had asked for it.
func (c *Collections) giveUp(r *running, why, loss reason.Reason) {
	r.life.drop(loss, time.Now())
	r.retire(why)
	r.stop()
	c.config.Log.Info("collection ended", "collection", r.resource.String(), "reason", cmp.Or(loss, "idle"), "idle", r.idle(time.Now()).Round(time.Second))
}

// makeRoom keeps a tenth of the bound free: first it shortens histories, then it drops the
// collection that was not asked for longest. Objects that still do not fit are refused when they
// come in.
func (c *Collections) makeRoom(now time.Time) {
	c.shortenHistories()
	c.dropIdlest(now)
}

// makeRoomFor makes room for what came to a collection that is in use, and reports whether it fits.
func (c *Collections) makeRoomFor(r *running) bool {
	now := time.Now()
	if !r.budget.full() || r.idle(now) >= minIdleForEviction {
		return !r.budget.full()
	}
	c.shortenHistories()
	for r.budget.full() && c.dropIdlest(now) {
	}
	return !r.budget.full()
}

// shortenHistories halves the history of every collection for which there is little room.
func (c *Collections) shortenHistories() {
	for _, r := range c.list() {
		if r.budget.crowded() {
			r.shorten()
		}
	}
}

// dropIdlest drops one collection: the one that nobody has asked for longest, of those that have
// little room and are not in use. It reports whether there was one.
func (c *Collections) dropIdlest(now time.Time) bool {
	all := slices.DeleteFunc(c.list(), func(r *running) bool {
		return !r.budget.crowded() || c.isEager(r) || r.idle(now) < minIdleForEviction
	})
	if len(all) == 0 {
		return false
	}
	c.end(slices.MaxFunc(all, func(a, b *running) int { return cmp.Compare(a.idle(now), b.idle(now)) }), reason.Memory, reason.Memory)
	return true
}
