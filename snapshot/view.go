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

// View is what a collection knows at one moment. It is immutable. A request gets a state from it under two kinds of conditions:
//
//   - Age. A probe asks the upstream for its revision. Once the newest state has reached that revision, the probe has proven
//     the state. The state's age is the time since that probe was sent.
//   - Timeline. A timeline is one history of etcd. A restored backup begins another one, with other states at the same
//     revisions. So a revision means something only if the states are known to be of the upstream's timeline.
//
// The methods that give a state:
//
//	method                       gives                           if
//	latest                       the newest state                its age is below Limits.Staleness
//	notOlder                     the newest state, for a list    as latest; if the list names a revision, the timeline is known
//	stateToWatch (watches.go)    the newest state, for a watch   as latest; and the timeline is known
//	exact                        the state at a revision         the timeline is known
//	consistent (consistent.go)   the newest state                a probe that was sent after the request came has proven it
type View struct {
	// unavailable is the reason why there is no state; [reason.None] if there is one.
	unavailable reason.Reason
	// unavailableSince is the time at which the last state was lost, or the collection began; zero if there is a state.
	unavailableSince time.Time
	// retired reports whether the collection was dropped for ever, so that no other view follows.
	retired bool
	// epoch is the number of the view's epoch. Each load and each drop of the state begins another epoch.
	epoch uint64

	// Interval has the revisions whose states are known. It is empty if there is no state.
	Interval
	// versions has the states at all revisions of the interval.
	versions index.History
	// newest is the newest state, at the interval's end.
	newest   index.Tree
	envelope *wire.Envelope
	// provenBy is the last probe that has proven the newest state: the state has every write from before the probe was sent.
	provenBy source.Probe
	// loadAskedAt is the time at which the upstream was asked for the state with which the interval began.
	loadAskedAt time.Time

	// broadcaster has the watchers of the collection; nil if no watches are served.
	broadcaster *watch.Broadcaster
	// streaming reports whether the feed reads a stream that goes on from the interval's end, in the same timeline.
	streaming bool
	// reloadingSince is the time at which a load that will replace the known state began; zero if there is none now.
	reloadingSince time.Time

	// replacedCh is closed when another view replaces this one.
	replacedCh chan struct{}
	// provenCh is closed when a later probe has proven the state, or when the state is lost, or another one is loaded.
	provenCh chan struct{}
}

// Interval is a closed interval of revisions. Both ends are 0 if it is empty.
type Interval struct {
	From, To uint64
}

// clone returns a copy that the caller may change and publish.
func (v *View) clone() *View { return new(*v) }

// whenReplaced and whenProven are arguments of Collection.await, and tell it which changes to wait for.
func whenReplaced(v *View) <-chan struct{} { return v.replacedCh }
func whenProven(v *View) <-chan struct{}   { return v.provenCh }

// moment is the time at which a request reads a View, with the staleness bound and the outage at that time. In an outage, no
// API server answers.
type moment struct {
	at        time.Time
	staleness time.Duration // [Limits].Staleness, the bound of the age
	outage    clock.Outage
}

// inOutage reports whether there is an outage now, and an API server was heard less than the staleness bound ago.
func (m moment) inOutage() bool {
	return m.outage.Ongoing && clock.Age(m.outage.LastHeard, m.at) < m.staleness
}

// age returns the age of the newest state: the time since the sending of the probe that has proven the state. If no stream is
// read, the age does not grow in an outage, since nobody can read a newer state then. Nor does it grow in the first seconds
// after the outage, in which the stream is opened again (see [clock.Outage.AsOfWithoutStream]).
func (v *View) age(m moment) time.Duration {
	asOf := m.at
	if !v.streaming {
		asOf = m.outage.AsOfWithoutStream(m.at, m.staleness)
	}
	return clock.Age(v.provenBy.Sent, asOf)
}

// knowsTimeline reports whether the states are known to be of the upstream's timeline. A stream that is read shows this. In
// an outage, nobody can have seen another timeline.
func (v *View) knowsTimeline(m moment) bool { return v.streaming || m.inOutage() }

// anyRevision is the minRevision of a request that names no revision.
const anyRevision = 0

// latest returns the newest state, if it is at minRevision or later and young enough.
func (v *View) latest(m moment, minRevision uint64) (Snapshot, reason.Reason) {
	switch {
	case v.unavailable != reason.None:
		return Snapshot{}, v.unavailable
	case v.age(m) >= m.staleness:
		return Snapshot{}, reason.Stale
	case v.To < minRevision:
		return Snapshot{}, reason.NotProven
	}
	s := v.snapshot()
	s.CurrentAt = m.at.Add(-v.age(m)) // usually v.provenBy.Sent; later in an outage
	return s, reason.None
}

// notOlder is latest for a list. If the list names a revision, the timeline must be known, too.
func (v *View) notOlder(m moment, minRevision uint64) (Snapshot, reason.Reason) {
	s, why := v.latest(m, minRevision)
	if why == reason.None && minRevision != anyRevision && !v.knowsTimeline(m) {
		return Snapshot{}, reason.NotProven
	}
	return s, why
}

// snapshot returns the newest state, however old it is.
func (v *View) snapshot() Snapshot {
	return Snapshot{
		ListState:   source.ListState{Revision: v.To, Envelope: v.envelope, Tree: v.newest},
		CurrentAt:   v.provenBy.Sent,
		epoch:       v.epoch,
		broadcaster: v.broadcaster,
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
	state := source.ListState{Revision: revision, Envelope: v.envelope, Tree: v.versions.Find(revision).Tree}
	return Snapshot{ListState: state, epoch: v.epoch}, reason.None
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

// lastPut returns the object that was created or updated last; nil if the history has no such change. revisions has the
// revision of that change and those of all deletions since, in ascending order.
func (v *View) lastPut() (put *index.Object, revisions []uint64) {
	for i := v.versions.Len() - 1; i >= 0 && put == nil; i-- {
		version := v.versions.At(i)
		put = version.Put // nil for a deletion
		revisions = append(revisions, version.Revision)
	}
	slices.Reverse(revisions)
	return put, revisions
}
