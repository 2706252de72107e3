package snapshot

import (
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
				r.tendWatches(now)
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
		if r.keep > 0 && !c.isKept(r) && r.idle(now) > r.keep {
			r.life.left()
			c.end(r, reason.Stopped, reason.Other)
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

// giveUp stops a collection's feed and forgets what the collection knew.
func (c *Collections) giveUp(r *running, why reason.Reason, loss reason.Reason) {
	r.life.close(loss, time.Now())
	r.retire(why)
	r.stop()
	c.config.Log.Info("collection ended", "collection", r.resource.String(), "reason", why, "idle", r.idle(time.Now()).Round(time.Second))
}
