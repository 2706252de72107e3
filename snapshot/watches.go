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

// Follow returns the newest state for a client that will watch from it, or the reason why there is none. The state must be at
// the revision or later, and of a known timeline (see View.knowsTimeline). If gapless is true, every change after the revision
// must be known, too. Follow waits up to maxWait for the state, since a wait costs the upstream less than a forwarded watch.
func (c *Collection) Follow(ctx context.Context, revision uint64, gapless bool, maxWait time.Duration) (Snapshot, reason.Reason) {
	c.Touch()
	read := func(v *View) (Snapshot, reason.Reason) { return v.follow(c.now(), revision, gapless) }
	if snap, why := read(c.view.Load()); why != reason.NotProven {
		return snap, why
	}
	c.requestProbe()
	return c.await(ctx, maxWait, reason.NotProven, whenReplaced, read)
}

// follow is [Collection.Follow] without a wait.
func (v *View) follow(m moment, revision uint64, gapless bool) (Snapshot, reason.Reason) {
	snap, why := v.latest(m, revision)
	if why != reason.None {
		return Snapshot{}, why
	}
	span := v.span()
	if gapless && span.RetainedAfter() > revision {
		return Snapshot{}, reason.History
	}
	if !v.knowsTimeline(m) {
		return Snapshot{}, reason.NotProven
	}
	return snap, reason.None
}

// WatchForm returns the form in which the upstream writes events of the collection. It is nil if no watch can begin at this state:
// the state was found by Exact, or no watches are served.
func (s Snapshot) WatchForm() *watch.Form {
	if s.broadcaster == nil {
		return nil
	}
	return s.broadcaster.Form()
}

// Watch returns a watcher of the objects that q selects, from the revision options.After on; nil if WatchForm is nil, or if
// the watches of the collection have been ended. Watch sets options.Filter. The caller must close the watcher.
func (s Snapshot) Watch(q index.Query, options watch.Options) *watch.Watcher {
	if s.broadcaster == nil {
		return nil
	}
	options.Filter = index.NewFilter(s.Envelope, q)
	return s.broadcaster.Watch(options)
}

// isWatched reports whether clients watch the collection.
func (v *View) isWatched() bool { return v.broadcaster != nil && v.broadcaster.Watchers() > 0 }

// newBroadcaster returns a broadcaster of the changes after a revision. If form is nil, no watches are served, and it returns nil.
func (c *Collection) newBroadcaster(form *watch.Form, revision uint64) *watch.Broadcaster {
	if form == nil {
		return nil
	}
	return watch.NewBroadcaster(*form, watch.Span{From: revision, To: revision}, &c.counts.watches, c.shared.pacer)
}

// span returns the part of the view that watchers see.
func (v *View) span() watch.Span {
	return watch.Span{Versions: v.versions, From: v.From, To: v.To}
}

// publishToBroadcasterLocked publishes the view v to its broadcaster. If the view before, old, had another broadcaster, the watchers
// of that one end.
//
// Watches end in five ways. After Abort, watchers deliver nothing more. After End and EndWithin, they first deliver what is left.
//
//	why                        begins in             the broadcaster's method                    further watches can begin
//	the state is lost          forget                Abort, by publishToBroadcasterLocked        after the next load
//	the changes are in doubt   abortWatches          Abort                                       after the next load
//	another state was loaded   install               End, by publishToBroadcasterLocked          at once
//	the stream may be dead     replaceBroadcaster    End, by publishToBroadcasterLocked          at once
//	listproxy ends             EndWatches            EndWithin                                   no
func (c *Collection) publishToBroadcasterLocked(v, old *View) {
	if old.broadcaster != nil && old.broadcaster != v.broadcaster {
		if v.unavailable == reason.None {
			old.broadcaster.End()
		} else {
			old.broadcaster.Abort()
		}
	}
	if v.broadcaster != nil {
		v.broadcaster.Publish(v.span())
	}
}

// endWatchesIfStreamDead ends clients' watches if the feed's own stream may be dead: its connection is half-open, say, or its
// API server stands still. Another API server may have newer changes for these clients. The stream may be dead if two things
// are true:
//
//   - It was silent for at least the staleness bound, and for at least the time in which a bookmark should come.
//   - No probe that was sent within the staleness bound has proven that the stream has missed nothing.
//
// An old state alone does not end watches. Kubernetes does not promise that a watch is up to date, and an upstream that is
// too busy for probes would have to answer each watch that ends here.
func (c *Collection) endWatchesIfStreamDead() {
	v := c.view.Load()
	if !v.isWatched() {
		return
	}
	m := c.now()
	asOf := m.outage.AsOf(m.at, m.staleness) // silence in an outage does not count
	silence := clock.Age(c.freshness.Load().StreamHeardAt(), asOf)
	isSilent := silence >= max(m.staleness, source.BookmarkEvery)
	isProven := v.age(m) < m.staleness
	if isSilent && !isProven {
		c.replaceBroadcaster(v.broadcaster)
	}
}

// replaceBroadcaster replaces a broadcaster by a new one, so that the old one's watchers end (see publishToBroadcasterLocked). It
// does nothing if the collection has another broadcaster by now.
func (c *Collection) replaceBroadcaster(old *watch.Broadcaster) {
	c.update(func(next *View) {
		if next.broadcaster == old {
			next.broadcaster = c.newBroadcaster(old.Form(), next.To)
		}
	})
}

// abortWatches ends all watchers, since the changes that they have not delivered yet are in doubt.
func (c *Collection) abortWatches() {
	c.update(func(next *View) {
		if next.broadcaster != nil {
			next.broadcaster.Abort()
			next.broadcaster = nil
		}
	})
}

// EndWatches ends all watches that are served from memory, within a time. It is called before the process ends.
func (c *Collections) EndWatches(within time.Duration) {
	for _, r := range c.list() {
		if v := r.view.Load(); v.broadcaster != nil {
			v.broadcaster.EndWithin(within, watch.EndShutdown)
		}
	}
}
