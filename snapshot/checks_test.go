package snapshot

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
)

// check compares the collection with the model (model_test.go): the newest state, the states at some revisions, the changes
// that watches get, and the bytes that are counted. A View is what the collection knows now.
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
		return fmt.Errorf("got %d counted bytes, want %d", got, want)
	}
	return nil
}

// isFresh reports whether the newest state is known and younger than modelStaleness.
func (l *life) isFresh(now time.Time) bool {
	return l.known && l.ageEnd(now).Sub(l.currentAt) < modelStaleness
}

// checkNewest checks the newest state, and which requests for a state not older than a revision get it.
func (l *life) checkNewest(v *View) error {
	// The newest state is given if and only if it is fresh.
	now := l.collection.now()
	want := l.isFresh(now.at)
	s, unavailable := v.latest(now, l.applied.To)
	if got := unavailable == reason.None; got != want {
		return fmt.Errorf("got reason %q, want a state: %t; it was current %v ago", unavailable, want, time.Since(l.currentAt))
	}
	if !want {
		return nil
	}

	// It has everything that was written upstream before the staleness bound. The time of an outage is added to the bound.
	outageTime := now.at.Sub(l.ageEnd(now.at))
	if minRevision := l.upstreamRevisionAgo(outageTime + modelStaleness); s.Revision < minRevision {
		return fmt.Errorf("it is at revision %d, but the upstream was at %d already before the staleness bound", s.Revision, minRevision)
	}
	if s.Revision != l.applied.To {
		return fmt.Errorf("it is at revision %d, want %d", s.Revision, l.applied.To)
	}

	// A request that names a revision gets the state if the state has reached it and is of the upstream's timeline.
	ifOfTimeline := reason.NotProven
	if l.hasTimeline(now.at) {
		ifOfTimeline = reason.None
	}
	for minRevision, want := range map[uint64]reason.Reason{
		anyRevision:      reason.None,
		l.applied.To - 1: ifOfTimeline,
		l.applied.To:     ifOfTimeline,
		l.applied.To + 1: reason.NotProven,
	} {
		if _, got := v.notOlder(now, minRevision); got != want {
			return fmt.Errorf("not older than %d: got reason %q, want %q", minRevision, got, want)
		}
	}
	return l.checkObjects(s, l.stateAt(l.applied.To))
}

// checkRetained checks that watches get all changes after the revision RetainedAfter of the span (the history for watches). A
// watch may begin there, and not one revision earlier.
func (l *life) checkRetained(v *View) error {
	const gapless = true
	span := v.span()
	retainedAfter := span.RetainedAfter()

	// Every write after RetainedAfter has a version with its change.
	var wantAt, gotAt []uint64 // the revisions of the changes
	for _, w := range l.writes {
		if retainedAfter < w.revision && w.revision <= span.To {
			wantAt = append(wantAt, w.revision)
		}
	}
	for i := span.Versions.FirstAfter(retainedAfter); i < span.Versions.Len(); i++ {
		version := span.Versions.At(i)
		gotAt = append(gotAt, version.Revision)
		if version.Change == (index.Change{}) {
			return fmt.Errorf("the change at %d, after %d, is not known", version.Revision, retainedAfter)
		}
	}
	if !slices.Equal(wantAt, gotAt) {
		return fmt.Errorf("after %d: got changes at %d, want %d", retainedAfter, gotAt, wantAt)
	}

	// RetainedAfter is at least the revision of the load. It is at most that of the last write that is not after the span's
	// beginning.
	most := l.applied.From
	for _, w := range l.writes {
		if w.revision <= span.From {
			most = max(most, w.revision)
		}
	}
	if retainedAfter < l.applied.From || retainedAfter > most {
		return fmt.Errorf("changes are retained after %d, want after %d to %d", retainedAfter, l.applied.From, most)
	}

	now := l.collection.now()
	if !l.isFresh(now.at) || !l.hasTimeline(now.at) {
		return nil
	}
	for after, want := range map[uint64]reason.Reason{retainedAfter - 1: reason.History, retainedAfter: reason.None} {
		if _, why := v.stateToWatch(now, after, gapless); why != want {
			return fmt.Errorf("a watch after %d: got reason %q, want %q; changes are retained after %d", after, why, want, retainedAfter)
		}
	}
	return nil
}

// checkExact checks the state at a revision. In some cases, the model allows an answer, but does not require it.
func (l *life) checkExact(v *View, revision uint64) error {
	now := l.collection.now()
	isApplied := l.known && l.applied.From <= revision && revision <= l.applied.To
	canBeKnown := isApplied && l.hasTimeline(now.at)
	s, unavailable := v.exact(now, revision)
	isAnswered := unavailable == reason.None
	switch {
	case isAnswered && !canBeKnown:
		return fmt.Errorf("it is answered, want no answer: the applied interval is %v", l.applied)
	case isAnswered && l.mustForget(revision):
		return errors.New("it is answered, though it is older than the history")
	case isAnswered && s.Revision != revision:
		return fmt.Errorf("it is answered as revision %d", s.Revision)
	case isAnswered:
		return l.checkObjects(s, l.stateAt(revision))
	case canBeKnown && l.mustKnow(revision):
		return fmt.Errorf("got reason %q, want an answer", unavailable)
	case l.known && revision > l.applied.To && unavailable != reason.NotProven:
		return fmt.Errorf("it is not reached yet: got reason %q, want %q", unavailable, reason.NotProven)
	}
	return nil
}

// wantUsedBytes returns the number of bytes that must be counted: those of the objects in the view's first state, and for each
// later write those of the version and of the object.
func (l *life) wantUsedBytes(v *View) int64 {
	state := l.stateAt(v.From)
	size := int64(0)
	for _, o := range state {
		size += sizeOf(o)
	}
	for _, w := range l.writes { // replays the writes after the first state
		if v.From < w.revision && w.revision <= v.To {
			size += v.newest.VersionSize(state[w.keyIndex], w.object) + sizeOf(w.object)
			state[w.keyIndex] = w.object
		}
	}
	return size
}

// checkObjects compares the objects of a snapshot with a state. (Package index tests pages and selectors.)
func (l *life) checkObjects(s Snapshot, want modelState) error {
	var all []*index.Object
	for _, o := range want {
		if o != nil {
			all = append(all, o)
		}
	}
	if got := s.Page(index.Query{}, noBuffer); !slices.Equal(got.Objects, all) || got.Next != "" || got.Remaining != 0 {
		return fmt.Errorf("-want +got:\n%s", cmp.Diff(keysOf(all), keysOf(got.Objects)))
	}
	return nil
}

// keysOf returns the objects' keys and revisions, for a message.
func keysOf(objects []*index.Object) (keys []string) {
	for _, o := range objects {
		keys = append(keys, fmt.Sprintf("%s@%d", o.Key, o.Revision))
	}
	return keys
}
