package snapshot

import (
	"cmp"
	"maps"
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
			maps.DeleteFunc(c.bans, func(_ Scope, until time.Time) bool { return !now.Before(until) })
			c.mu.Unlock()
			c.endIdle(now)
			c.shortenHistories()
			c.dropIdlest(now)
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

// shortenHistories halves the history of one collection after the other, for as long as there is little room.
func (c *Collections) shortenHistories() {
	for _, r := range c.list() {
		if r.budget.crowded() {
			r.trimHalf()
		}
	}
}

// dropIdlest drops the collection that was idle for longest, if there is little room. Eager collections and those that
// were used a short time ago stay.
func (c *Collections) dropIdlest(now time.Time) {
	all := slices.DeleteFunc(c.list(), func(r *running) bool {
		return !r.budget.crowded() || c.isEager(r) || r.idleFor(now) < minIdleForEviction
	})
	if len(all) > 0 {
		idlest := slices.MaxFunc(all, func(a, b *running) int { return cmp.Compare(a.idleFor(now), b.idleFor(now)) })
		c.end(idlest, reason.Memory, reason.Memory)
	}
}
