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
	// versions has the states of the whole interval, by revision.
	versions index.History
	// newest is the state at the interval's end.
	newest   index.Tree
	envelope *wire.Envelope
	// provenBy is the last probe whose revision the interval has reached: the newest state has everything that was
	// written before that probe was sent.
	provenBy source.Probe
	// loadAskedAt is the time at which the upstream was asked for the state with which the interval began.
	loadAskedAt time.Time

	// broadcaster has the watchers of the collection; nil if no watches are served.
	broadcaster *watch.Broadcaster
	// streaming reports whether the feed reads a stream that goes on from the interval's end, in the same timeline. Without
	// a stream, only requests for any state are answered, except in an outage: see knowsTimeline.
	streaming bool
	// reloadingSince is the time at which a load beside the known state began; zero if there is none now.
	reloadingSince time.Time

	// replacedCh is closed when another view replaces this one.
	replacedCh chan struct{}
	// freshenedCh is closed when another view has a later provenBy, or another unavailable.
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

// replaced returns a channel that is closed when there is another view.
func (v *View) replaced() <-chan struct{} { return v.replacedCh }

// freshened returns a channel that is closed when a probe has proven a newer state, or when the state is lost or found.
func (v *View) freshened() <-chan struct{} { return v.freshenedCh }

// isReloading reports whether a load beside the known state is under way.
func (v *View) isReloading() bool { return v.unavailable == reason.None && !v.reloadingSince.IsZero() }

// moment is a time, with the bound and the outage that decide whether the newest state of a view is too old then.
type moment struct {
	at     time.Time
	bound  time.Duration // [Limits].Staleness
	outage clock.Outage
}

// inOutage reports whether an outage is going on, and began less than the bound ago.
func (m moment) inOutage() bool {
	return m.outage.Ongoing && clock.Age(m.outage.LastHeard, m.at) < m.bound
}

// age returns the age of the newest state. Without a stream the age does not grow in an outage: no other client can have read a
// newer state.
func (v *View) age(m moment) time.Duration {
	if v.streaming {
		return clock.Age(v.provenBy.Sent, m.at)
	}
	return clock.Age(v.provenBy.Sent, m.outage.AsOfWithoutStream(m.at, m.bound))
}

// knowsTimeline reports whether the state's timeline is the upstream's, so that requests that name a revision can be answered.
// While no stream is read, the upstream may have another timeline, with another state at the revision. In an outage nobody
// can have seen another timeline.
func (v *View) knowsTimeline(m moment) bool { return v.streaming || m.inOutage() }

// latest returns the newest state if its revision is minRevision or higher, and it is younger than the bound.
func (v *View) latest(m moment, minRevision uint64) (Snapshot, reason.Reason) {
	switch {
	case v.unavailable != reason.None:
		return Snapshot{}, v.unavailable
	case v.age(m) >= m.bound:
		return Snapshot{}, reason.Stale
	case v.To < minRevision:
		return Snapshot{}, reason.NotProven
	}
	s := v.snapshot()
	s.CurrentAt = m.at.Add(-v.age(m)) // in an outage, this is later than provenBy.Sent
	return s, reason.None
}

// notOlder is latest for a list. If the list names a revision, which is minRevision then, the timeline must be known, too.
func (v *View) notOlder(m moment, minRevision uint64) (Snapshot, reason.Reason) {
	s, why := v.latest(m, minRevision)
	if why == reason.None && minRevision > 0 && !v.knowsTimeline(m) {
		return Snapshot{}, reason.NotProven
	}
	return s, why
}

// snapshot returns the newest state.
func (v *View) snapshot() Snapshot {
	return Snapshot{
		Revision: v.To, Envelope: v.envelope, epoch: v.epoch, Tree: v.newest, broadcaster: v.broadcaster,
		CurrentAt: v.provenBy.Sent,
	}
}

// exact returns the state at a revision.
func (v *View) exact(m moment, revision uint64) (Snapshot, reason.Reason) {
	if v.unavailable != reason.None {
		return Snapshot{}, v.unavailable
	}
	if why := v.whyUnknown(revision); why != reason.None {
		return Snapshot{}, why
	}
	if !v.knowsTimeline(m) {
		return Snapshot{}, reason.NotProven
	}
	return Snapshot{Revision: revision, Envelope: v.envelope, epoch: v.epoch, Tree: v.versions.Find(revision).Tree}, reason.None
}

// whyUnknown returns the reason why the state at a revision is not known; None if it is known.
func (i Interval) whyUnknown(revision uint64) reason.Reason {
	switch {
	case revision > i.To:
		return reason.NotProven
	case revision < i.From:
		return reason.History
	}
	return reason.None
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
