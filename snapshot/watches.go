package snapshot

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/watch"
)

// Follow returns the newest state, at a revision or later, for a client that is going to follow it. With gapless
// it must be known what came after that revision. It waits for the feed to get there, for atMost: that costs
// less than another watch at the upstream, which would last for long.
func (c *Collection) Follow(ctx context.Context, rev uint64, gapless bool, atMost time.Duration) (Snapshot, reason.Reason) {
	c.Touch()
	ask := func(v *View) (Snapshot, reason.Reason) { return v.follow(c.moment(), rev, gapless) }
	if snap, why := ask(c.view.Load()); why != reason.NotProven {
		return snap, why
	}
	c.requestProbe()
	return c.await(ctx, atMost, reason.NotProven, (*View).replaced, ask)
}

// NoFollow returns the reason why Follow could not answer now; None if it could. It does not wait, and does not count
// as a use of the collection.
func (c *Collection) NoFollow(rev uint64, gapless bool) reason.Reason {
	v := c.view.Load()
	_, unavailable := v.follow(c.moment(), rev, gapless)
	return unavailable
}

// follow returns the newest state, if it is at rev or later, and if it is known what came after that
// where it must be.
func (v *View) follow(m moment, rev uint64, gapless bool) (Snapshot, reason.Reason) {
	snap, unavailable := v.latest(m, rev)
	if unavailable != reason.None {
		return Snapshot{}, unavailable
	}
	if span := v.span(); gapless && span.Kept() > rev {
		return Snapshot{}, reason.History
	}
	if !v.knowsTimeline(m) {
		return Snapshot{}, reason.NotProven
	}
	return snap, reason.None
}

// span is what is known, as those see it who follow it.
func (v *View) span() watch.Span {
	return watch.Span{Versions: v.versions, From: v.From, To: v.To}
}

// WatchForm returns how the upstream writes the events of a newest state's collection; nil if no
// client may follow it.
func (s Snapshot) WatchForm() *watch.Form {
	if s.broadcaster == nil {
		return nil
	}
	return s.broadcaster.Form()
}

// Watch follows the collection of a newest state, from o.After on. The filter is that of q. It returns
// nil if that is not possible any more. The watcher must be closed.
func (s Snapshot) Watch(q index.Query, o watch.Options) *watch.Watcher {
	if s.broadcaster == nil {
		return nil
	}
	o.Filter = index.NewFilter(s.Envelope, q)
	return s.broadcaster.Watch(o)
}

// newBroadcaster returns a broadcaster for clients that follow what begins with a revision; nil if none may.
func (c *Collection) newBroadcaster(form *watch.Form, rev uint64) *watch.Broadcaster {
	if form == nil {
		return nil
	}
	return watch.NewBroadcaster(*form, watch.Span{From: rev, To: rev}, &c.life.counts.watches, c.pacer)
}

// publishToBroadcasterLocked publishes a view to its broadcaster. Where another broadcaster had the clients before, they end: they are told
// what is left, or nothing if nothing is known any more.
func (c *Collection) publishToBroadcasterLocked(v, old *View) {
	if old.broadcaster != nil && old.broadcaster != v.broadcaster {
		old.broadcaster.End(v.unavailable != reason.None)
	}
	if v.broadcaster != nil {
		v.broadcaster.Publish(v.span())
	}
}

// endDeadWatches ends the clients' watches if the feed's own stream may be dead: half-open, or from an
// API server that stands still. It may be dead if nothing came on it for the staleness bound, and for
// longer than a bookmark takes, and no probe has shown that nothing happened. Another API server
// may tell these clients more. That the state is old is no reason to end them: nobody promises that
// a watch is up to date, and an upstream that is too busy for probes would have to answer each
// watch that ends here. A collection with watches is in use.
func (c *Collection) endDeadWatches(now time.Time) {
	v := c.view.Load()
	if v.broadcaster == nil || v.broadcaster.Watchers() == 0 {
		return
	}
	c.Touch()
	m := c.moment()
	silent := clock.Age(c.forecast.Load().StreamSentAt(), m.outage.AsOf(now, m.bound)) >= max(m.bound, source.BookmarkEvery)
	if silent && v.age(m) >= m.bound {
		c.endWatches(v.broadcaster, true)
	}
}

// endWatches ends the clients of a broadcaster, if it is still the collection's. With goOn others may begin; else what
// was not told yet is in doubt, and nobody may.
func (c *Collection) endWatches(broadcaster *watch.Broadcaster, goOn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.broadcaster != broadcaster {
		return
	}
	broadcaster.End(!goOn)
	var form *watch.Form
	if goOn {
		form = broadcaster.Form()
	}
	next := v.clone()
	next.broadcaster = c.newBroadcaster(form, v.To)
	c.publishLocked(next)
}

// PaceEnds plans the ends of other watches, too ([watch.Pacer.Plan]).
func (c *Collections) PaceEnds(watches int, longest time.Duration) (after, within time.Duration) {
	return c.pacer.Plan(time.Now(), watches, longest)
}

// EndWatches ends all clients that follow a collection, in order, within a time, since the process
// ends.
func (c *Collections) EndWatches(within time.Duration) {
	for _, r := range c.list() {
		if v := r.view.Load(); v.broadcaster != nil {
			v.broadcaster.EndWithin(within, watch.EndShutdown)
		}
	}
}
