package snapshot

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

const (
	// tidyInterval is the interval at which the janitor works.
	tidyInterval = time.Second
	// minIdleForEviction is the time for which nobody must have asked for a collection that is dropped to free memory.
	minIdleForEviction = time.Minute
)

// tidy is the janitor: until Collections is closed, it trims history, ends idle collections and dead watches, and keeps a
// tenth of the byte bound free. A collection with watches is in use.
func (c *Collections) tidy() {
	ticker := time.NewTicker(tidyInterval)
	defer ticker.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case now := <-ticker.C:
			for _, r := range c.list() {
				r.trimByAge(now)
				if r.view.Load().isWatched() {
					r.Touch()
				}
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

// endIdle drops the collections that nobody has asked for during Config.Idle.
func (c *Collections) endIdle(now time.Time) {
	if c.config.Idle == 0 {
		return
	}
	for _, r := range c.list() {
		if !c.isEager(r) && r.idleFor(now) > c.config.Idle {
			c.drop(r, reason.Warming, reason.None)
		}
	}
}

// drop removes a collection and gives it up.
func (c *Collections) drop(r *running, why, loss reason.Reason) {
	c.mu.Lock()
	if c.all[r.resource] == r {
		delete(c.all, r.resource)
	}
	c.mu.Unlock()
	c.giveUp(r, why, loss)
}

// giveUp stops the feed of a removed collection and forgets what the collection knew. Requests that have found the
// collection get the reason why. A known state is counted as lost by the reason loss; with None, which is for idle
// collections, it is not counted.
func (c *Collections) giveUp(r *running, why, loss reason.Reason) {
	if wasKnown := r.retire(why); wasKnown && loss != reason.None {
		r.counts.addLoss(loss)
	}
	r.stop()
	c.config.Log.Info("collection ended",
		"collection", r.resource.String(), "reason", cmp.Or(loss, "idle"), "idle", r.idleFor(time.Now()).Round(time.Second))
}

// shortenHistories halves the history of one collection after the other, while less than a tenth of the bound is free.
func (c *Collections) shortenHistories() {
	for _, r := range c.list() {
		if c.budget.crowded() {
			r.trimHalf()
		}
	}
}

// dropIdlest drops the collection that was idle for longest, if less than a tenth of the bound is free. Eager collections,
// and those that were used within minIdleForEviction, stay.
func (c *Collections) dropIdlest(now time.Time) {
	if !c.budget.crowded() {
		return
	}
	idle := slices.DeleteFunc(c.list(), func(r *running) bool { return c.isEager(r) || r.idleFor(now) < minIdleForEviction })
	if len(idle) > 0 {
		idlest := slices.MaxFunc(idle, func(a, b *running) int { return cmp.Compare(a.idleFor(now), b.idleFor(now)) })
		c.drop(idlest, reason.Memory, reason.Memory)
	}
}
