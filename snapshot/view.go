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
	// retired reports whether there will be no other view.
	retired bool
	// epoch is the one in which it was learned.
	epoch uint64
	// Interval is what is known: every state in it. It is empty without a newest state.
	Interval
	// currentAt is the last probe whose answer the interval has reached: the newest state has everything that was
	// written before it was sent.
	currentAt source.Probe
	// loaded is the time at which the upstream was asked for the state with which the interval began.
	loaded time.Time
	// versions, by revision, of the whole interval.
	versions index.History
	// newest is the state at the interval's end.
	newest   index.Tree
	envelope *wire.Envelope
	// broadcaster has the clients that follow the collection; nil if none may.
	broadcaster *watch.Broadcaster
	// streams reports whether a stream is being read that goes on from the interval's end, from an upstream with the same
	// timeline. Without one, only those are answered who ask for any state, unless nobody answers upstream.
	streams bool
	// reloads is the time at which a load beside this state began; zero if there is none.
	reloads time.Time
	// next is closed when there is another view, newer when there is one with a later currentAt or without a state.
	next, newer chan struct{}
}

// Interval is one of revisions, from the first to the last; 0 is none.
type Interval struct {
	From, To uint64
}

// with returns a copy with a change.
func (v *View) with(change func(*View)) *View {
	next := *v
	change(&next)
	return &next
}

// pendingProbe is a revision that the upstream had when it was asked, or later.
type pendingProbe struct {
	source.Probe
	revision uint64
}

// moment is the time at which a view is asked, and what bounds the age of its newest state.
type moment struct {
	now    time.Time
	bound  time.Duration
	outage clock.Outage
}

// isOut reports whether nobody answers upstream, and what is known still counts.
func (m moment) isOut() bool { return m.outage.Lasts && clock.Age(m.outage.Heard, m.now) < m.bound }

// age returns how old the newest state is. While the upstream does not answer, it gets no older.
func (v *View) age(m moment) time.Duration {
	if v.streams {
		return clock.Age(v.currentAt.Sent, m.now)
	}
	return clock.Age(v.currentAt.Sent, m.outage.AsOfBroken(m.now, m.bound))
}

// knowsTimeline reports whether revisions can be answered. While no stream is read they mean nothing: the upstream may
// have another timeline, or may have told who names the newest one that it is too old (410). But where nobody answers
// there is no other timeline.
func (v *View) knowsTimeline(m moment) bool { return v.streams || m.isOut() }

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

// notOlder is latest for those who ask for a state that is not older than a revision, or for any (0).
func (v *View) notOlder(m moment, rev uint64) (Snapshot, reason.Reason) {
	snap, unavailable := v.latest(m, rev)
	if unavailable == reason.None && rev > 0 && !v.knowsTimeline(m) {
		return Snapshot{}, reason.NotProven
	}
	return snap, unavailable
}

// state is the newest state.
func (v *View) state() Snapshot {
	return Snapshot{
		Revision: v.To, Envelope: v.envelope, epoch: v.epoch, tree: v.newest, broadcaster: v.broadcaster,
		CurrentAt: v.currentAt.Sent,
	}
}

// lastChange returns the object of the newest change that is no deletion, and the revisions of that change
// and of the deletions that followed; nil if there was none since the state was loaded.
func (v *View) lastChange() (last *index.Object, revisions []uint64) {
	for i := v.versions.Len() - 1; i >= 0 && last == nil; i-- {
		version := v.versions.At(i)
		last, revisions = version.Put, append(revisions, version.Revision)
	}
	slices.Reverse(revisions)
	return last, revisions
}

// exact returns the state at rev.
func (v *View) exact(m moment, rev uint64) (Snapshot, reason.Reason) {
	if unavailable := v.knows(rev, v.unavailable); unavailable != reason.None {
		return Snapshot{}, unavailable
	}
	if !v.knowsTimeline(m) {
		return Snapshot{}, reason.NotProven
	}
	return Snapshot{Revision: rev, Envelope: v.envelope, epoch: v.epoch, tree: v.versions.Find(rev).Tree}, reason.None
}

// knows returns the reason why the state at rev is not known; None if it is. unavailable is why there is no newest state,
// or None.
func (i Interval) knows(rev uint64, unavailable reason.Reason) reason.Reason {
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
