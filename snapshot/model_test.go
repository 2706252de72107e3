package snapshot

import (
	"slices"
	"strconv"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
)

// The model is the simplest truth about one resource upstream: the list of all writes. Replaying them gives the state at any
// revision. The model also knows the interval of revisions whose states the collection has been given by its feed (the
// goroutine that reads the upstream), and when it was given each.
//
// A life (life_test.go) changes a collection and a model in the same way, step by step. checks_test.go compares the two.

const (
	// modelHistory is the time for which states are kept. The collection keeps 256 checkpoints for it (a revision and its
	// time), so it keeps one for each second.
	modelHistory = 256 * time.Second
	// modelStaleness is the age at which the newest state may no longer be given.
	modelStaleness = 90 * time.Second
	// modelStart is the upstream's first revision.
	modelStart = 100
)

// modelKeys are in the order of lists: '-' sorts before '/'.
var modelKeys = [...]string{"a-b/x", "a-b/y", "a/0", "a/1", "a/10", "a/2", "a/3", "b/0", "b/1", "b/2", "b/3", "c/0"}

// write is a change of one object upstream.
type write struct {
	revision uint64
	keyIndex int           // the index of the object's key in modelKeys
	object   *index.Object // nil if it was deleted
}

// modelState has the objects of a state, by the indexes of their keys; nil where there is none.
type modelState [len(modelKeys)]*index.Object

// advance records that the end of the applied interval has reached a revision.
type advance struct {
	revision uint64
	at       time.Time
	// isFirstAt reports whether no earlier advance has the same time. Only a first one can be a checkpoint, at which history is
	// trimmed.
	isFirstAt bool
}

// model is the truth about the upstream, and what the feed has applied of it.
type model struct {
	writes   []write
	upstream uint64 // the upstream's newest revision
	// upstreamTimes are all revisions that the upstream has had, with the times at which it reached them.
	upstreamTimes []checkpoint
	// outage is the last period in which the upstream did not answer.
	outage clock.Outage

	known    bool      // the collection has a state
	applied  Interval  // from the revision of the load to the last one that the feed has applied
	advances []advance // of the interval's end, since the load
	// probes are the requests for the upstream's newest revision since the load, or since the stream was opened again: when
	// they were sent, and what was answered.
	probes []checkpoint
	// currentAt is the time up to which the state has everything: that of the last probe whose answer the interval has reached,
	// or of the request for the load.
	currentAt    time.Time
	slow, broken bool          // the feed's stream is slow or broken, so that it sends no changes
	delayed      []stateChange // the changes that the stream has still to send
	// freedBefore is the revision before which states may have been forgotten to free memory.
	freedBefore uint64
	// trimmedAt is the time at which history was last trimmed by age.
	trimmedAt time.Time
}

// stateAt returns the upstream's state at a revision.
func (m *model) stateAt(revision uint64) (state modelState) {
	for _, w := range m.writes {
		if w.revision > revision {
			break
		}
		state[w.keyIndex] = w.object
	}
	return state
}

// setUpstream lets the upstream reach a revision now.
func (m *model) setUpstream(revision uint64) {
	m.upstream = revision
	m.upstreamTimes = append(m.upstreamTimes, checkpoint{at: time.Now(), revision: revision})
}

// upstreamRevisionAgo returns the revision that the upstream had some time ago.
func (m *model) upstreamRevisionAgo(ago time.Duration) (revision uint64) {
	for _, t := range m.upstreamTimes {
		if time.Since(t.at) >= ago {
			revision = t.revision
		}
	}
	return revision
}

// beginState records that the upstream's newest state was loaded. It was asked for at askedAt.
func (m *model) beginState(askedAt time.Time) {
	m.forgetState()
	m.known = true
	m.applied = Interval{From: m.upstream, To: m.upstream}
	m.currentAt = askedAt
	m.advances = []advance{{revision: m.upstream, at: time.Now(), isFirstAt: true}}
}

// forgetState forgets all that the feed has applied, and its stream.
func (m *model) forgetState() {
	m.known = false
	m.applied = Interval{}
	m.advances = nil
	m.probes = nil
	m.freedBefore = 0
	m.slow, m.broken = false, false
	m.delayed = nil
}

// advanceTo records that the feed has applied an event or a bookmark at a revision.
func (m *model) advanceTo(revision uint64) {
	now := time.Now()
	m.applied.To = revision
	n := len(m.advances)
	isFirstAt := n == 0 || m.advances[n-1].at.Before(now)
	m.advances = append(m.advances, advance{revision: revision, at: now, isFirstAt: isFirstAt})
	for _, probe := range m.probes {
		if probe.revision <= revision && probe.at.After(m.currentAt) {
			m.currentAt = probe.at
		}
	}
}

// reachedAt returns the time at which the interval's end reached a revision.
func (m *model) reachedAt(revision uint64) time.Time {
	i := slices.IndexFunc(m.advances, func(a advance) bool { return a.revision >= revision })
	return m.advances[i].at
}

// mustKnow reports whether the collection must still know the state at a revision in the applied interval: when history was
// last trimmed, this state had been reached less than modelHistory before, and it was not forgotten to free memory.
func (m *model) mustKnow(revision uint64) bool {
	return revision >= m.freedBefore && m.trimmedAt.Sub(m.reachedAt(revision)) < modelHistory
}

// mustForget reports whether the collection must have forgotten the state at a revision: when history was last trimmed, a later
// revision had been reached at least modelHistory before. If neither mustKnow nor mustForget is true, the state may be known or
// forgotten.
func (m *model) mustForget(revision uint64) bool {
	return slices.ContainsFunc(m.advances, func(a advance) bool {
		wasOld := m.trimmedAt.Sub(a.at) >= modelHistory
		return a.isFirstAt && a.revision > revision && wasOld
	})
}

// inShortOutage reports whether there is an outage that has lasted for less than modelStaleness. Since it began, nobody can
// have read a newer state upstream.
func (m *model) inShortOutage(now time.Time) bool {
	return m.outage.Ongoing && now.Sub(m.outage.LastHeard) < modelStaleness
}

// hasTimeline reports whether the state is known to be of the upstream's timeline, so that requests that name a revision can be
// answered. (A timeline is one history of etcd. It ends when a backup is restored, which a broken stream would not show.)
func (m *model) hasTimeline(now time.Time) bool { return !m.broken || m.inShortOutage(now) }

// ageEnd returns the time up to which the age of the newest state counts. Usually this is now. But without a stream, the state
// gets no older in a short outage, and for five seconds after it.
func (m *model) ageEnd(now time.Time) time.Time {
	const momentAfterOutage = 5 * time.Second
	wasShort := m.outage.Ended.Sub(m.outage.LastHeard) < modelStaleness
	justEnded := !m.outage.Ongoing && now.Sub(m.outage.Ended) < momentAfterOutage
	isPaused := m.inShortOutage(now) || justEnded && wasShort
	if m.broken && isPaused {
		return m.outage.LastHeard
	}
	return now
}

// modelObject returns an object whose bytes end with its revision. Its size depends on a random number.
func modelObject(keyIndex int, revision uint64, random byte) *index.Object {
	const maxPadding = 50
	padding := make([]byte, random%maxPadding)
	return index.NewObject(noNumber, modelKeys[keyIndex], revision, strconv.AppendUint(padding, revision, 10))
}
