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
//
// A timeline is one history of etcd. A restored backup begins another one, with other states at the same revisions. What a View
// gives to requests:
//
//	method                      gives                           needs
//	latest                      the newest state                an age below Limits.Staleness
//	notOlder                    the newest state, for a list    an age below Limits.Staleness; with minRevision > 0 a known timeline
//	stateToWatch (watches.go)   the newest state, for a watch   an age below Limits.Staleness, and a known timeline
//	exact                       the state at a revision         a known timeline
//	consistent (fresh.go)       the newest state                a proof by a probe that was sent after the request came
type View struct {
	// unavailable is the reason why there is no state; [reason.None] if there is one.
	unavailable reason.Reason
	// unavailableSince is the time at which the last state was lost, or the collection began; zero if there is a state.
	unavailableSince time.Time
	// retired reports whether this is the last view: the collection was dropped for ever.
	retired bool
	// epoch is the number of the epoch in which the view was published.
	epoch uint64

	// Interval has the revisions whose states are known. It is empty if there is no state.
	Interval
	// versions has the states of the whole interval, by revision.
	versions index.History
	// newest is the newest state, at the interval's end.
	newest   index.Tree
	envelope *wire.Envelope
	// provenBy is the last probe whose revision the interval has reached. The newest state has everything that was written
	// before that probe was sent.
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
	// freshenedCh is closed when a later probe has proven the state, or when the state is lost or loaded.
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

// whenReplaced and whenFreshened are arguments of Collection.await, and tell it which changes to wait for.
func whenReplaced(v *View) <-chan struct{}  { return v.replacedCh }
func whenFreshened(v *View) <-chan struct{} { return v.freshenedCh }

// moment is the time of a request, and what else decides whether the newest state is too old.
type moment struct {
	at        time.Time
	staleness time.Duration // [Limits].Staleness, the bound of the age
	outage    clock.Outage
}

// inOutage reports whether there is an outage that began less than the staleness bound ago.
func (m moment) inOutage() bool {
	return m.outage.Ongoing && clock.Age(m.outage.LastHeard, m.at) < m.staleness
}

// age returns the age of the newest state. The age begins when the probe is sent that proves the state. Without a stream, the age
// stands still during an outage and for a short time afterwards, since nobody can have read a newer state in the outage (see
// [clock.Outage.AsOfWithoutStream]).
func (v *View) age(m moment) time.Duration {
	asOf := m.at
	if !v.streaming {
		asOf = m.outage.AsOfWithoutStream(m.at, m.staleness)
	}
	return clock.Age(v.provenBy.Sent, asOf)
}

// knowsTimeline reports whether the state is known to be of the upstream's timeline. A stream that is read shows the
// timeline. In an outage, nobody can have seen another one.
func (v *View) knowsTimeline(m moment) bool { return v.streaming || m.inOutage() }

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
	s.CurrentAt = m.at.Add(-v.age(m)) // v.provenBy.Sent, or later in an outage
	return s, reason.None
}

// notOlder is latest for a list. A list that names a revision (minRevision > 0) needs a known timeline.
func (v *View) notOlder(m moment, minRevision uint64) (Snapshot, reason.Reason) {
	s, why := v.latest(m, minRevision)
	if why == reason.None && minRevision > 0 && !v.knowsTimeline(m) {
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

// lastPut returns the object that was put last, by a creation or an update; nil if the history has none. revisions has the
// revisions of that change and of all deletions since, in ascending order.
func (v *View) lastPut() (put *index.Object, revisions []uint64) {
	for i := v.versions.Len() - 1; i >= 0 && put == nil; i-- {
		version := v.versions.At(i)
		put = version.Put // nil for a deletion
		revisions = append(revisions, version.Revision)
	}
	slices.Reverse(revisions)
	return put, revisions
}
