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
// the revision or later, and of a known timeline (see View.knowsTimeline). With gapless, every change after the revision must
// be known, too. Follow waits up to maxWait for the state, since a wait costs the upstream less than a forwarded watch.
func (c *Collection) Follow(ctx context.Context, revision uint64, gapless bool, maxWait time.Duration) (Snapshot, reason.Reason) {
	c.Touch()
	find := func(v *View) (Snapshot, reason.Reason) { return v.follow(c.now(), revision, gapless) }
	if snap, why := find(c.view.Load()); why != reason.NotProven {
		return snap, why
	}
	c.requestProbe()
	return c.await(ctx, maxWait, reason.NotProven, (*View).replaced, find)
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

// newBroadcaster returns a broadcaster of the changes after a revision; nil, so that no watches are served, if form is nil.
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

// publishToBroadcasterLocked publishes the view v to its broadcaster. If old had another broadcaster, the watchers of that one
// end. All ways in which watches end:
//
//	why                        ended by                 watchers                     new watchers can begin
//	the state is lost          Abort, called here       deliver nothing more         after the next load
//	the changes are in doubt   abortWatches             deliver nothing more         after the next load
//	another state was loaded   End, called here         deliver what is left first   at once, at the new broadcaster
//	the stream may be dead     endWatchesIfStreamDead   deliver what is left first   at once, at the new broadcaster
//	listproxy ends             EndWatches               deliver what is left first   no
func (c *Collection) publishToBroadcasterLocked(v, old *View) {
	switch {
	case old.broadcaster == nil, old.broadcaster == v.broadcaster:
	case v.unavailable != reason.None:
		old.broadcaster.Abort()
	default:
		old.broadcaster.End()
	}
	if v.broadcaster != nil {
		v.broadcaster.Publish(v.span())
	}
}

// endWatchesIfStreamDead ends clients' watches if the feed's own stream may be dead: its connection is half-open, say, or its
// API server stands still. Another API server may have newer changes for these clients. The stream may be dead if it was silent
// for the bound, or for longer than bookmarks take, and no probe has shown meanwhile that it has missed nothing.
//
// An old state alone does not end watches. Kubernetes does not promise that a watch is up to date, and an upstream that is
// too busy for probes would have to answer each watch that ends here.
func (c *Collection) endWatchesIfStreamDead() {
	v := c.view.Load()
	if !v.isWatched() {
		return
	}
	m := c.now()
	silence := clock.Age(c.freshness.Load().StreamHeardAt(), m.outage.AsOf(m.at, m.bound)) // Silence in an outage does not count.
	isSilent := silence >= max(m.bound, source.BookmarkEvery)
	isProven := v.age(m) < m.bound
	if isSilent && !isProven {
		c.drainWatches(v.broadcaster)
	}
}

// drainWatches replaces the broadcaster, so that publishToBroadcasterLocked ends the old one's watchers.
func (c *Collection) drainWatches(broadcaster *watch.Broadcaster) {
	c.update(func(next *View) {
		if next.broadcaster == broadcaster { // otherwise it was replaced meanwhile
			next.broadcaster = c.newBroadcaster(broadcaster.Form(), next.To)
		}
	})
}

// abortWatches ends all watchers, since what they have not delivered yet is in doubt.
func (c *Collection) abortWatches() {
	c.update(func(next *View) {
		if next.broadcaster != nil {
			next.broadcaster.Abort()
			next.broadcaster = nil
		}
	})
}

// EndWatches ends all watches from memory within a time, before the process ends.
func (c *Collections) EndWatches(within time.Duration) {
	for _, collection := range c.list() {
		if v := collection.view.Load(); v.broadcaster != nil {
			v.broadcaster.EndWithin(within, watch.EndShutdown)
		}
	}
}
