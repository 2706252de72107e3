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

// Follow returns the newest state if it is at rev or later, for a client that is going to watch from it. If gapless
// is set, every change after rev must be known. It waits at most atMost for the feed to get there, which costs the
// upstream less than a forwarded watch.
func (c *Collection) Follow(ctx context.Context, rev uint64, gapless bool, atMost time.Duration) (Snapshot, reason.Reason) {
	c.Touch()
	ask := func(v *View) (Snapshot, reason.Reason) { return v.follow(c.moment(), rev, gapless) }
	if snap, why := ask(c.view.Load()); why != reason.NotProven {
		return snap, why
	}
	c.requestProbe()
	return c.await(ctx, atMost, reason.NotProven, (*View).replaced, ask)
}

// WhyNotFollow returns the reason why Follow would find no state now; None if it would find one. It does not wait, and does
// not count as a use of the collection.
func (c *Collection) WhyNotFollow(rev uint64, gapless bool) reason.Reason {
	v := c.view.Load()
	_, unavailable := v.follow(c.moment(), rev, gapless)
	return unavailable
}

// follow returns the newest state if it is at rev or later and, with gapless, all changes after rev are known.
func (v *View) follow(m moment, rev uint64, gapless bool) (Snapshot, reason.Reason) {
	snap, unavailable := v.latest(m, rev)
	if unavailable != reason.None {
		return Snapshot{}, unavailable
	}
	if span := v.span(); gapless && span.RetainedAfter() > rev {
		return Snapshot{}, reason.History
	}
	if !v.knowsTimeline(m) {
		return Snapshot{}, reason.NotProven
	}
	return snap, reason.None
}

// span returns the part of the view that watchers see.
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

// Watch returns a watcher of the objects that q chooses, from the revision o.After on; nil if no watch may begin any
// more. The watcher must be closed.
func (s Snapshot) Watch(q index.Query, o watch.Options) *watch.Watcher {
	if s.broadcaster == nil {
		return nil
	}
	o.Filter = index.NewFilter(s.Envelope, q)
	return s.broadcaster.Watch(o)
}

// newBroadcaster returns a broadcaster of a state at a revision and of what follows; nil if form is nil, which means
// that no watches are served.
func (c *Collection) newBroadcaster(form *watch.Form, rev uint64) *watch.Broadcaster {
	if form == nil {
		return nil
	}
	return watch.NewBroadcaster(*form, watch.Span{From: rev, To: rev}, &c.counts.watches, c.pacer)
}

// publishToBroadcasterLocked publishes a view to its broadcaster. If the old view had another one, the watchers of that
// end: they are told what is left in it, or nothing if the state was lost.
func (c *Collection) publishToBroadcasterLocked(v, old *View) {
	if old.broadcaster != nil && old.broadcaster != v.broadcaster {
		if v.unavailable != reason.None {
			old.broadcaster.Abort()
		} else {
			old.broadcaster.End()
		}
	}
	if v.broadcaster != nil {
		v.broadcaster.Publish(v.span())
	}
}

// endDeadWatches ends the clients' watches if the feed's own stream may be dead, that is half-open, or from an API
// server that stands still: nothing came on it for the staleness bound and longer than bookmarks take, and no probe
// has shown that nothing happened. Another API server may tell these clients more. An old state alone is no reason to
// end them: nobody promises that a watch is up to date, and an upstream that is too busy for probes would have to
// answer each watch that ends here. It also notes that a collection with watches is in use.
func (c *Collection) endDeadWatches(now time.Time) {
	v := c.view.Load()
	if v.broadcaster == nil || v.broadcaster.Watchers() == 0 {
		return
	}
	c.Touch()
	m := c.moment()
	silence := clock.Age(c.forecast.Load().StreamSentAt(), m.outage.AsOf(now, m.bound))
	if silence >= max(m.bound, source.BookmarkEvery) && v.age(m) >= m.bound {
		c.endWatches(v.broadcaster, true)
	}
}

// endWatches ends the watchers of a broadcaster, if it is still the collection's. With renew they are told what is
// left, and others may begin. Without, what was not told yet is in doubt: they are told nothing more, and none may
// begin.
func (c *Collection) endWatches(broadcaster *watch.Broadcaster, renew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.broadcaster != broadcaster {
		return
	}
	var form *watch.Form
	if renew {
		broadcaster.End()
		form = broadcaster.Form()
	} else {
		broadcaster.Abort()
	}
	next := v.clone()
	next.broadcaster = c.newBroadcaster(form, v.To)
	c.publishLocked(next)
}

// PaceEnds plans the ends of watches that are not of any collection, together with those that are ([watch.Pacer.Plan]).
func (c *Collections) PaceEnds(watches int, longest time.Duration) (after, within time.Duration) {
	return c.pacer.Plan(time.Now(), watches, longest)
}

// EndWatches ends all clients' watches within a time, in order, because the process ends.
func (c *Collections) EndWatches(within time.Duration) {
	for _, r := range c.list() {
		if v := r.view.Load(); v.broadcaster != nil {
			v.broadcaster.EndWithin(within, watch.EndShutdown)
		}
	}
}
