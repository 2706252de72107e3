package snapshot

import (
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// View is what a collection knows at one moment. It is immutable.
type View struct {
	// unavailable is the reason why there is no newest state; [reason.None] if there is one.
	unavailable reason.Reason
	// unavailableSince is the time at which the last newest state was lost, or the collection began; zero if there is a
	// newest state.
	unavailableSince time.Time
	// retired reports whether there will be no other view.
	retired bool
	// epoch is the collection's epoch in which the view was published.
	epoch uint64
	// Interval has the revisions whose states are known. It is empty without a newest state.
	Interval
	// currentAt is the last probe whose revision the interval has reached: the newest state has everything that was
	// written before that probe was sent.
	currentAt source.Probe
	// loaded is the time at which the upstream was asked for the state with which the interval began.
	loaded time.Time
	// versions has the states of the whole interval, by revision.
	versions index.History
	// newest is the state at the interval's end.
	newest   index.Tree
	envelope *wire.Envelope
	// broadcaster has the watchers of the collection; nil if no watches are served.
	broadcaster *watch.Broadcaster
	// streaming reports whether a stream is read that goes on from the interval's end, in the same timeline. Without a
	// stream, only requests for any state are answered, except in an outage: see knowsTimeline.
	streaming bool
	// reloadingSince is the time at which a background reload began; zero if none is running.
	reloadingSince time.Time
	// replacedCh is closed when another view replaces this one.
	replacedCh chan struct{}
	// freshenedCh is closed when another view has a later currentAt, or when the newest state is lost or found.
	freshenedCh chan struct{}
}

// Interval is a closed interval of revisions. Both ends are 0 if it is empty.
type Interval struct {
	From, To uint64
}

// clone returns a copy that the caller may change and publish.
func (v *View) clone() *View {
	next := *v
	return &next
}

// moment has what decides, at one time, whether the newest state of a view is too old.
type moment struct {
	now    time.Time
	bound  time.Duration // [Limits].Staleness
	outage clock.Outage
}

// inOutage reports whether an outage lasts that began less than the bound ago.
func (m moment) inOutage() bool { return m.outage.Lasts && clock.Age(m.outage.Heard, m.now) < m.bound }

// age returns the age of the newest state. In an outage it does not grow: nothing newer can have been read elsewhere.
func (v *View) age(m moment) time.Duration {
	if v.streaming {
		return clock.Age(v.currentAt.Sent, m.now)
	}
	return clock.Age(v.currentAt.Sent, m.outage.AsOfWithoutStream(m.now, m.bound))
}

// knowsTimeline reports whether requests that name a revision can be answered. While no stream is read, the upstream may
// have another timeline, in which the revision is another state. In an outage nobody can have seen another timeline.
func (v *View) knowsTimeline(m moment) bool { return v.streaming || m.inOutage() }

// latest returns the newest state if its revision is minRevision or higher, and it is younger than the bound.
func (v *View) latest(m moment, minRevision uint64) (Snapshot, reason.Reason) {
	switch {
	case v.unavailable != reason.None:
		return Snapshot{}, v.unavailable
	case v.age(m) >= m.bound:
		return Snapshot{}, reason.Stale
	}
	if v.To < minRevision {
		return Snapshot{}, reason.NotProven
	}
	snap := v.state()
	snap.CurrentAt = m.now.Add(-v.age(m))
	return snap, reason.None
}

// notOlder returns the newest state if its revision is minRevision or higher; with 0 any revision does.
func (v *View) notOlder(m moment, minRevision uint64) (Snapshot, reason.Reason) {
	snap, unavailable := v.latest(m, minRevision)
	if unavailable == reason.None && minRevision > 0 && !v.knowsTimeline(m) {
		return Snapshot{}, reason.NotProven
	}
	return snap, unavailable
}

// state returns the newest state.
func (v *View) state() Snapshot {
	return Snapshot{
		Revision: v.To, Envelope: v.envelope, epoch: v.epoch, Tree: v.newest, broadcaster: v.broadcaster,
		CurrentAt: v.currentAt.Sent,
	}
}

// lastChange returns the object of the newest change that is not a deletion, or nil if there was none since the state was
// loaded; and the revisions of that change and of the deletions that followed it, in ascending order.
func (v *View) lastChange() (last *index.Object, revisions []uint64) {
	for i := v.versions.Len() - 1; i >= 0 && last == nil; i-- {
		version := v.versions.At(i)
		last = version.Put
		revisions = append(revisions, version.Revision)
	}
	slices.Reverse(revisions)
	return last, revisions
}

// exact returns the state at a revision.
func (v *View) exact(m moment, revision uint64) (Snapshot, reason.Reason) {
	if unavailable := v.whyUnknown(revision, v.unavailable); unavailable != reason.None {
		return Snapshot{}, unavailable
	}
	if !v.knowsTimeline(m) {
		return Snapshot{}, reason.NotProven
	}
	return Snapshot{Revision: revision, Envelope: v.envelope, epoch: v.epoch, Tree: v.versions.Find(revision).Tree}, reason.None
}

// whyUnknown returns the reason why the state at a revision is not known; None if it is known. unavailable is the reason
// why there is no newest state, or None.
func (i Interval) whyUnknown(revision uint64, unavailable reason.Reason) reason.Reason {
	switch {
	case unavailable != reason.None:
		return unavailable
	case revision > i.To:
		return reason.NotProven
	case revision < i.From:
		return reason.History
	}
	return reason.None
}
