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

// StateToWatch returns the newest state for a client that will watch after a revision. It returns the reason if the state does
// not meet all of these conditions:
//
//   - The state must be at the revision or later, and younger than Limits.Staleness.
//   - It must be known that the state belongs to the upstream's timeline. (A restored backup of etcd begins another timeline,
//     with other states at the same revisions.)
//   - If gapless is true, every change after the revision must be known.
//
// If the state is not there yet, StateToWatch waits up to maxWait for it, since a wait costs the upstream less than a forwarded
// watch.
func (c *Collection) StateToWatch(ctx context.Context, revision uint64, gapless bool, maxWait time.Duration) (Snapshot, reason.Reason) {
	c.Touch()
	read := func(v *View) (Snapshot, reason.Reason) { return v.stateToWatch(c.now(), revision, gapless) }
	if snap, why := read(c.view.Load()); why != reason.NotProven {
		return snap, why
	}
	c.requestProbe()
	return c.awaitWhileNotProven(ctx, maxWait, read)
}

// stateToWatch is [Collection.StateToWatch] without a wait.
func (v *View) stateToWatch(m moment, revision uint64, gapless bool) (Snapshot, reason.Reason) {
	snap, why := v.latest(m, revision)
	span := v.span()
	switch {
	case why != reason.None:
		return Snapshot{}, why
	case gapless && span.RetainedAfter() > revision:
		return Snapshot{}, reason.History
	case !v.knowsTimeline(m):
		return Snapshot{}, reason.NotProven
	}
	return snap, reason.None
}

// WatchForm returns the form in which the upstream writes events of the collection. It is nil if no watch can begin at this
// state: the state was found by Exact, or no watches are served.
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

// newBroadcaster returns a broadcaster of the changes after a revision; nil if form is nil, since no watches are served then.
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

// endReplacedBroadcaster ends the watchers of old's broadcaster, unless the next view has the same broadcaster.
//
// Watches end for one of five causes. In the first three, another View is published, and endReplacedBroadcaster then calls the
// broadcaster's method. In the last two, the function under "noticed in" calls it.
//
//	cause                      noticed in               the broadcaster's method   clients can watch again
//	the state is lost          forget                   Abort                      after the next load
//	another state is loaded    install                  End                        at once
//	the stream may be dead     endWatchesIfStreamDead   End                        at once
//	the changes are in doubt   abortWatches             Abort                      after the next load
//	listproxy ends             EndWatches               EndWithin                  never
//
// After Abort, a watcher delivers nothing more. After End or EndWithin, it first delivers the changes that are left.
func endReplacedBroadcaster(old, next *View) {
	if old.broadcaster == nil || old.broadcaster == next.broadcaster {
		return
	}
	if next.unavailable == reason.None {
		old.broadcaster.End()
	} else {
		old.broadcaster.Abort()
	}
}

// endWatchesIfStreamDead ends clients' watches if the stream that the feed reads may be dead: for example, its connection is
// half-open, or its API server hangs. When clients watch again, another API server may have newer changes for them.
//
// The stream may be dead if it is silent, and the state is not proven:
//
//	silent    The stream has sent nothing for as long as the staleness bound, or source.BookmarkEvery if that is longer. (A stream
//	          that works sends a bookmark in that time.)
//	proven    A probe that was sent within the staleness bound has shown that the stream has missed nothing.
//
// A state that is not proven does not alone end watches. It may mean that the upstream is too busy for probes. The clients'
// next watches would then add to its load, while Kubernetes does not promise that a watch is up to date.
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

// replaceBroadcaster replaces a broadcaster by a new one, so that the old one's watchers end (see endReplacedBroadcaster). It
// does nothing if the collection has another broadcaster by now.
func (c *Collection) replaceBroadcaster(old *watch.Broadcaster) {
	c.updateView(func(next *View) {
		if next.broadcaster == old {
			next.broadcaster = c.newBroadcaster(old.Form(), next.To)
		}
	})
}

// abortWatches ends all watchers, since the changes that they have not delivered yet are in doubt.
func (c *Collection) abortWatches() {
	c.updateView(func(next *View) {
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
