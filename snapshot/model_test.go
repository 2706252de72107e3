package snapshot

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
)

// The model is the trivial truth about one resource upstream: the list of all writes. The state at a revision comes of
// replaying that list. Beside it stands what the feed has applied to the collection, and when: one interval of revisions,
// as the rules of doc.go say. A life (life_test.go) changes both, step by step, and checks what the collection answers.

const (
	modelHistory   = 256 * time.Second // so that a checkpoint is kept for each second
	modelStaleness = 90 * time.Second
	// modelStart is the upstream's first revision.
	modelStart = 100
)

// modelKeys are in the order of lists: '-' sorts before '/'.
var modelKeys = []string{"a-b/x", "a-b/y", "a/0", "a/1", "a/10", "a/2", "a/3", "b/0", "b/1", "b/2", "b/3", "c/0"}

// write is a change of one object upstream.
type write struct {
	revision uint64
	key      int           // the index in modelKeys
	object   *index.Object // nil if it was deleted
}

// modelState has the objects of a state, by the indexes of their keys; nil where there is none.
type modelState [16]*index.Object

// advance is a revision that the interval has reached, and the time at which it did.
type advance struct {
	revision uint64
	at       time.Time
	// first reports whether it was the first at that time, so that history may be trimmed there.
	first bool
}

// model is the truth about the upstream, and what the feed has applied of it.
type model struct {
	writes   []write
	upstream uint64 // the upstream's newest revision
	// upstreamTimes are the upstream's newest revisions, and the times since which they were.
	upstreamTimes []checkpoint
	// outage is the last time in which nobody answered upstream.
	outage clock.Outage

	// known reports whether there is a state, and applied is the interval that the feed has applied.
	known    bool
	applied  Interval
	advances []advance
	// currentAt is the time of the last probe, or of the request for the state, whose revision was reached.
	currentAt time.Time
	// pendingProbes are all probes since the state was loaded.
	pendingProbes []checkpoint
	// slow and broken say why the stream does not send changes; these wait in delayed.
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

// upstreamBefore returns the newest revision that the upstream had some time ago.
func (m *model) upstreamBefore(ago time.Duration) (revision uint64) {
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
	m.known, m.applied, m.advances, m.freedBefore = false, Interval{}, nil, 0
	m.pendingProbes = nil
	m.slow, m.broken, m.delayed = false, false, nil
}

// advance applies an event or a bookmark at a revision.
func (m *model) advance(revision uint64) {
	now := time.Now()
	m.applied.To = revision
	n := len(m.advances)
	m.advances = append(m.advances, advance{revision: revision, at: now, first: n == 0 || m.advances[n-1].at.Before(now)})
	for _, probe := range m.pendingProbes {
		if probe.revision <= revision && probe.at.After(m.currentAt) {
			m.currentAt = probe.at
		}
	}
}

// retention says whether the state at a revision in the applied interval must still be known, or must be forgotten.
// Between the two it may be either.
func (m *model) retention(revision uint64) (mustBeKnown, mustBeForgotten bool) {
	reachedAt := time.Time{}
	for _, a := range m.advances {
		if a.revision >= revision && reachedAt.IsZero() {
			reachedAt = a.at
		}
		if a.first && a.revision > revision && m.trimmedAt.Sub(a.at) >= modelHistory {
			mustBeForgotten = true
		}
	}
	return revision >= m.freedBefore && m.trimmedAt.Sub(reachedAt) < modelHistory, mustBeForgotten
}

// isOut reports whether nobody answers upstream, and that has not lasted for too long.
func (m *model) isOut(now time.Time) bool {
	return m.outage.Ongoing && now.Sub(m.outage.LastHeard) < modelStaleness
}

// hasTimeline reports whether requests that name a revision can be answered.
func (m *model) hasTimeline(now time.Time) bool { return !m.broken || m.isOut(now) }

// judgedAt returns the time by which the age of the newest state is judged. While nobody answers, and for a moment after
// that, a state without a stream gets no older.
func (m *model) judgedAt(now time.Time) time.Time {
	const momentAfterOutage = 5 * time.Second
	endedNow := !m.outage.Ongoing && now.Sub(m.outage.Ended) < momentAfterOutage && m.outage.Ended.Sub(m.outage.LastHeard) < modelStaleness
	if m.broken && (m.isOut(now) || endedNow) {
		return m.outage.LastHeard
	}
	return now
}

// check compares what the collection answers with the model: the newest state, those at some revisions, what watches
// get, and the bytes that are counted.
func (l *life) check(revisions []uint64) error {
	v := l.collection.view.Load()
	for _, revision := range revisions {
		if err := l.checkExact(v, revision); err != nil {
			return fmt.Errorf("at revision %d: %w", revision, err)
		}
	}
	if err := l.checkNewest(v); err != nil {
		return fmt.Errorf("the newest state: %w", err)
	}
	if l.known {
		if err := l.checkRetained(v); err != nil {
			return fmt.Errorf("what watches get: %w", err)
		}
	}
	if want, got := l.wantUsedBytes(v), l.budget.used.Load(); want != got {
		return fmt.Errorf("%d bytes are counted, want %d", got, want)
	}
	return nil
}

// isFresh reports whether the newest state is known and new enough.
func (l *life) isFresh(now time.Time) bool {
	return l.known && l.judgedAt(now).Sub(l.currentAt) < modelStaleness
}

// checkNewest checks the newest state, and whether requests that name a revision get it.
func (l *life) checkNewest(v *View) error {
	m := l.collection.now()
	want := l.isFresh(m.at)
	s, unavailable := v.latest(m, l.applied.To)
	if got := unavailable == reason.None; got != want {
		return fmt.Errorf("%q, want it: %v; current as of %v ago", unavailable, want, time.Since(l.currentAt))
	}
	if !want {
		return nil
	}
	outageAge := m.at.Sub(l.judgedAt(m.at))
	if least := l.upstreamBefore(outageAge + modelStaleness); s.Revision < least {
		return fmt.Errorf("at revision %d, where the upstream was at %d before the bound", s.Revision, least)
	}
	if s.Revision != l.applied.To {
		return fmt.Errorf("at revision %d, want %d", s.Revision, l.applied.To)
	}
	hasTimeline := l.hasTimeline(m.at)
	for minRevision, want := range map[uint64]bool{
		0: true, l.applied.To - 1: hasTimeline, l.applied.To: hasTimeline, l.applied.To + 1: false,
	} {
		wantReason := reason.NotProven
		if want {
			wantReason = reason.None
		}
		if _, got := v.notOlder(m, minRevision); got != wantReason {
			return fmt.Errorf("not older than %d: %q, want %q", minRevision, got, wantReason)
		}
	}
	return l.checkObjects(s, l.stateAt(l.applied.To))
}

// checkRetained checks that a watch after RetainedAfter gets all later changes, and none from before the state was
// loaded. RetainedAfter is no later than the last write at or before the interval's beginning. No watch can begin
// earlier, and any can begin there if there is a newest state.
func (l *life) checkRetained(v *View) error {
	span := v.span()
	retainedAfter := span.RetainedAfter()
	latest := l.applied.From
	var want, got []uint64
	for _, w := range l.writes {
		if w.revision <= span.From {
			latest = max(latest, w.revision)
		}
		if retainedAfter < w.revision && w.revision <= span.To {
			want = append(want, w.revision)
		}
	}
	for i := span.Versions.FirstAfter(retainedAfter); i < span.Versions.Len(); i++ {
		version := span.Versions.At(i)
		got = append(got, version.Revision)
		if version.Change == (index.Change{}) {
			return fmt.Errorf("the change at %d, after %d, is not known", version.Revision, retainedAfter)
		}
	}
	if !slices.Equal(want, got) {
		return fmt.Errorf("after %d, changes are retained at %d, want %d", retainedAfter, got, want)
	}
	if retainedAfter < l.applied.From || retainedAfter > latest {
		return fmt.Errorf("changes are retained after %d, want after %d to %d", retainedAfter, l.applied.From, latest)
	}
	m := l.collection.now()
	if !l.isFresh(m.at) || !l.hasTimeline(m.at) {
		return nil
	}
	for after, want := range map[uint64]reason.Reason{retainedAfter - 1: reason.History, retainedAfter: reason.None} {
		if _, why := v.follow(m, after, true); why != want {
			return fmt.Errorf("a watch after %d: %q, want %q; changes are retained after %d", after, why, want, retainedAfter)
		}
	}
	return nil
}

// checkExact checks the state at a revision.
func (l *life) checkExact(v *View, revision uint64) error {
	m := l.collection.now()
	isApplied := l.known && l.applied.From <= revision && revision <= l.applied.To
	canBeKnown := isApplied && l.hasTimeline(m.at)
	mustBeKnown, mustBeForgotten := l.retention(revision)
	s, unavailable := v.exact(m, revision)
	switch {
	case unavailable == reason.None && !canBeKnown:
		return fmt.Errorf("it is answered, want no answer: applied is %v", l.applied)
	case unavailable == reason.None && mustBeForgotten:
		return errors.New("it is answered, though it is older than the history")
	case unavailable == reason.None && s.Revision != revision:
		return fmt.Errorf("it is answered as revision %d", s.Revision)
	case unavailable == reason.None:
		return l.checkObjects(s, l.stateAt(revision))
	case canBeKnown && mustBeKnown:
		return fmt.Errorf("it is not answered: %q", unavailable)
	case l.known && revision > l.applied.To && unavailable != reason.NotProven:
		return fmt.Errorf("%q, want %q: it is not reached yet", unavailable, reason.NotProven)
	}
	return nil
}

// wantUsedBytes returns the bytes that must be counted: the objects at the beginning of the interval, and what each later
// version has added.
func (l *life) wantUsedBytes(v *View) int64 {
	size, state := int64(0), l.stateAt(v.From)
	for _, o := range state {
		size += sizeOf(o)
	}
	for _, w := range l.writes {
		if v.From < w.revision && w.revision <= v.To {
			size += v.newest.VersionSize(state[w.key], w.object) + sizeOf(w.object)
			state[w.key] = w.object
		}
	}
	return size
}

// checkObjects compares the objects of a snapshot. (Pages and selectors are tested in package index.)
func (l *life) checkObjects(s Snapshot, want modelState) error {
	var all []*index.Object
	for _, o := range want {
		if o != nil {
			all = append(all, o)
		}
	}
	if got := s.Page(index.Query{}, nil); !slices.Equal(got.Objects, all) || got.Next != "" || got.Counted {
		return fmt.Errorf("-want +got:\n%s", cmp.Diff(keysOf(all), keysOf(got.Objects)))
	}
	return nil
}

func keysOf(objects []*index.Object) (keys []string) {
	for _, o := range objects {
		keys = append(keys, fmt.Sprintf("%s@%d", o.Key, o.Revision))
	}
	return keys
}

// modelObject returns an object whose bytes differ between revisions, and whose size depends on a random number.
func modelObject(key int, revision uint64, random byte) *index.Object {
	const maxPadding = 50
	return index.NewObject(0, modelKeys[key], revision, strconv.AppendUint(make([]byte, random%maxPadding), revision, 10))
}
