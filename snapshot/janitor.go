package snapshot

import (
	"cmp"
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// tidy is the janitor: until Collections is closed, it cuts history, ends idle collections and dead watches, and keeps
// room below the byte bound.
func (c *Collections) tidy() {
	ticker := time.NewTicker(tidyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case now := <-ticker.C:
			for _, r := range c.list() {
				r.trimByAge(now)
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

// endIdle ends the collections that nobody has asked for during Config.Idle.
func (c *Collections) endIdle(now time.Time) {
	for _, r := range c.list() {
		if c.config.Idle > 0 && !c.isEager(r) && r.idleFor(now) > c.config.Idle {
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

// giveUp stops a collection's feed and forgets what the collection knew. Requests get the reason why. The loss of a state
// is counted by the reason loss, and not at all with None: then the collection was idle.
func (c *Collections) giveUp(r *running, why, loss reason.Reason) {
	if wasKnown := r.retire(why); wasKnown && loss != reason.None {
		r.counts.addLoss(loss)
	}
	r.stop()
	c.config.Log.Info("collection ended",
		"collection", r.resource.String(), "reason", cmp.Or(loss, "idle"), "idle", r.idleFor(time.Now()).Round(time.Second))
}

// makeRoom keeps a tenth of the bound free: it shortens histories, and then drops the collection that was idle for
// longest. An object that does not fit when it comes is handled by makeRoomFor.
func (c *Collections) makeRoom(now time.Time) {
	c.shortenHistories()
	c.dropIdlest(now)
}

// makeRoomFor makes room for an object that came to a collection, unless that is idle itself. It reports whether there is
// room then.
func (c *Collections) makeRoomFor(r *running) bool {
	now := time.Now()
	if !r.budget.full() || r.idleFor(now) >= minIdleForEviction {
		return !r.budget.full()
	}
	c.shortenHistories()
	for r.budget.full() && c.dropIdlest(now) {
	}
	return !r.budget.full()
}

// shortenHistories halves the history of one collection after the other, for as long as there is little room.
func (c *Collections) shortenHistories() {
	for _, r := range c.list() {
		if r.budget.crowded() {
			r.trimHalf()
		}
	}
}

// dropIdlest drops the collection that was idle for longest, if there is little room. It reports whether it dropped one:
// collections that are eager or were used a short time ago stay.
func (c *Collections) dropIdlest(now time.Time) bool {
	all := slices.DeleteFunc(c.list(), func(r *running) bool {
		return !r.budget.crowded() || c.isEager(r) || r.idleFor(now) < minIdleForEviction
	})
	if len(all) == 0 {
		return false
	}
	c.end(slices.MaxFunc(all, func(a, b *running) int { return cmp.Compare(a.idleFor(now), b.idleFor(now)) }), reason.Memory, reason.Memory)
	return true
}
