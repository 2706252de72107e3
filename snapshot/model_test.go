package snapshot

import (
	"slices"
	"strconv"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
)

// The model is the simplest truth about one resource upstream: the list of all writes. Replaying them gives the state at any
// revision. The model also knows which interval of revisions the feed has applied to the collection, and when (see doc.go).
// A life (life_test.go) changes collection and model step by step. checks_test.go compares the two.

const (
	modelHistory   = 256 * time.Second // 256 checkpoints are kept at most: one for each second
	modelStaleness = 90 * time.Second
	// modelStart is the upstream's first revision.
	modelStart = 100
)

// modelKeys are in the order of lists: '-' sorts before '/'.
var modelKeys = [...]string{"a-b/x", "a-b/y", "a/0", "a/1", "a/10", "a/2", "a/3", "b/0", "b/1", "b/2", "b/3", "c/0"}

// write is a change of one object upstream.
type write struct {
	revision uint64
	key      int           // the index in modelKeys
	object   *index.Object // nil if it was deleted
}

// modelState has the objects of a state, by the indexes of their keys; nil where there is none.
type modelState [len(modelKeys)]*index.Object

// advance is a revision that the interval's end has reached, and the time at which it did.
type advance struct {
	revision uint64
	at       time.Time
	// first is true if no earlier advance has the same time, so that history may be trimmed there.
	first bool
}

// model is the truth about the upstream, and what the feed has applied of it.
type model struct {
	writes   []write
	upstream uint64 // the upstream's newest revision
	// upstreamTimes are all revisions that the upstream has had, with the times at which it reached them.
	upstreamTimes []checkpoint
	// outage is the last period in which nobody answered upstream.
	outage clock.Outage

	known    bool     // there is a state
	applied  Interval // what the feed has applied
	advances []advance
	// currentAt is the time of the last probe, or of the request for the state, whose revision was reached.
	currentAt time.Time
	// probes are all probes since the state was loaded.
	probes []checkpoint
	// A stream that is slow or broken sends no changes. They wait in delayed.
	slow, broken bool
	delayed      []stateChange
	// freedBefore is the revision before which states may be forgotten to free memory.
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
		state[w.key] = w.object
	}
	return state
}

// setUpstream sets the upstream's newest revision.
func (m *model) setUpstream(revision uint64) {
	m.upstream = revision
	m.upstreamTimes = append(m.upstreamTimes, checkpoint{at: time.Now(), revision: revision})
}

// upstreamAgo returns the revision that the upstream had some time ago.
func (m *model) upstreamAgo(ago time.Duration) (revision uint64) {
	for _, t := range m.upstreamTimes {
		if time.Since(t.at) >= ago {
			revision = t.revision
		}
	}
	return revision
}

// beginState begins with the upstream's newest state, which was asked for at a time.
func (m *model) beginState(askedAt time.Time) {
	m.forgetState()
	m.known = true
	m.applied = Interval{From: m.upstream, To: m.upstream}
	m.currentAt = askedAt
	m.advances = []advance{{revision: m.upstream, at: time.Now(), first: true}}
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

// advance applies an event or a bookmark at a revision.
func (m *model) advance(revision uint64) {
	now := time.Now()
	m.applied.To = revision
	n := len(m.advances)
	m.advances = append(m.advances, advance{revision: revision, at: now, first: n == 0 || m.advances[n-1].at.Before(now)})
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

// mustKnow reports whether the state at a revision in the applied interval must still be known: at the last trim, it had been
// reached less than modelHistory before, and it was not freed.
func (m *model) mustKnow(revision uint64) bool {
	return revision >= m.freedBefore && m.trimmedAt.Sub(m.reachedAt(revision)) < modelHistory
}

// mustForget reports whether the state at a revision must be forgotten: at the last trim, a later checkpoint was as old as
// modelHistory. A state for which neither mustKnow nor mustForget is true may be known or forgotten.
func (m *model) mustForget(revision uint64) bool {
	return slices.ContainsFunc(m.advances, func(a advance) bool {
		return a.first && a.revision > revision && m.trimmedAt.Sub(a.at) >= modelHistory
	})
}

// isExcusedOutage reports whether there is an outage that has lasted for less than modelStaleness.
func (m *model) isExcusedOutage(now time.Time) bool {
	return m.outage.Ongoing && now.Sub(m.outage.LastHeard) < modelStaleness
}

// hasTimeline reports whether the timeline of the state is known, so that requests that name a revision can be answered.
func (m *model) hasTimeline(now time.Time) bool { return !m.broken || m.isExcusedOutage(now) }

// ageEnd returns the time up to which the newest state ages. While nobody answers upstream, and for a moment after that, a
// state without a stream gets no older.
func (m *model) ageEnd(now time.Time) time.Time {
	const momentAfterOutage = 5 * time.Second
	wasShort := m.outage.Ended.Sub(m.outage.LastHeard) < modelStaleness
	justEnded := !m.outage.Ongoing && now.Sub(m.outage.Ended) < momentAfterOutage && wasShort
	if m.broken && (m.isExcusedOutage(now) || justEnded) {
		return m.outage.LastHeard
	}
	return now
}

// modelObject returns an object whose bytes differ between revisions, and whose size depends on a random number.
func modelObject(key int, revision uint64, random byte) *index.Object {
	const maxPadding = 50
	return index.NewObject(0, modelKeys[key], revision, strconv.AppendUint(make([]byte, random%maxPadding), revision, 10))
}
