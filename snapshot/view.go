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
	// epoch is the epoch of the collection in which it was learned.
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
	// streaming reports whether a stream is read that goes on from the interval's end, in the same timeline. Without
	// one, only requests for any state are answered, unless nobody answers upstream.
	streaming bool
	// reloadingSince is the time at which a load beside this state began; zero if there is none.
	reloadingSince time.Time
	// replacedCh is closed when there is another view, freshenedCh when there is one with a later currentAt, or one
	// whose newest state is lost or found.
	replacedCh, freshenedCh chan struct{}
}

// Interval is a closed interval of revisions. Both ends are 0 if it is empty.
type Interval struct {
	From, To uint64
}

// clone returns a copy, to be changed and published.
func (v *View) clone() *View {
	next := *v
	return &next
}

// moment is the time of a question to a view, and what decides then whether its newest state is too old.
type moment struct {
	now    time.Time
	bound  time.Duration // Limits.Staleness
	outage clock.Outage
}

// isOut reports whether nobody answers upstream now, and that has not lasted for longer than the bound.
func (m moment) isOut() bool { return m.outage.Lasts && clock.Age(m.outage.Heard, m.now) < m.bound }

// age returns how old the newest state is. While the upstream does not answer, it gets no older.
func (v *View) age(m moment) time.Duration {
	if v.streaming {
		return clock.Age(v.currentAt.Sent, m.now)
	}
	return clock.Age(v.currentAt.Sent, m.outage.AsOfWithoutStream(m.now, m.bound))
}

// knowsTimeline reports whether requests that name a revision can be answered. While no stream is read they cannot: the
// upstream may have another timeline, in which that revision is another state. But while nobody answers there is no
// other timeline.
func (v *View) knowsTimeline(m moment) bool { return v.streaming || m.isOut() }

// latest returns the newest state if it is at least atLeast, and younger than the bound.
func (v *View) latest(m moment, atLeast uint64) (Snapshot, reason.Reason) {
	switch {
	case v.unavailable != reason.None:
		return Snapshot{}, v.unavailable
	case v.age(m) >= m.bound:
		return Snapshot{}, reason.Stale
	}
	if v.To < atLeast {
		return Snapshot{}, reason.NotProven
	}
	snap := v.state()
	snap.CurrentAt = m.now.Add(-v.age(m))
	return snap, reason.None
}

// notOlder returns the newest state if it is at rev or later; with 0, whatever its revision is.
func (v *View) notOlder(m moment, rev uint64) (Snapshot, reason.Reason) {
	snap, unavailable := v.latest(m, rev)
	if unavailable == reason.None && rev > 0 && !v.knowsTimeline(m) {
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

// lastChange returns the object of the newest change that is no deletion, and the revisions of that change
// and of the deletions that followed; nil if there was none since the state was loaded.
func (v *View) lastChange() (last *index.Object, revisions []uint64) {
	for i := v.versions.Len() - 1; i >= 0 && last == nil; i-- {
		version := v.versions.At(i)
		last = version.Put
		revisions = append(revisions, version.Revision)
	}
	slices.Reverse(revisions)
	return last, revisions
}

// exact returns the state at rev.
func (v *View) exact(m moment, rev uint64) (Snapshot, reason.Reason) {
	if unavailable := v.whyUnknown(rev, v.unavailable); unavailable != reason.None {
		return Snapshot{}, unavailable
	}
	if !v.knowsTimeline(m) {
		return Snapshot{}, reason.NotProven
	}
	return Snapshot{Revision: rev, Envelope: v.envelope, epoch: v.epoch, Tree: v.versions.Find(rev).Tree}, reason.None
}

// whyUnknown returns the reason why the state at rev is not known; None if it is. unavailable is the reason why there
// is no newest state, or None.
func (i Interval) whyUnknown(rev uint64, unavailable reason.Reason) reason.Reason {
	switch {
	case unavailable != reason.None:
		return unavailable
	case rev > i.To:
		return reason.NotProven
	case rev < i.From:
		return reason.History
	}
	return reason.None
}
