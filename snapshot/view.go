package snapshot

import (
	"cmp"
	"slices"
	"time"
)

// Absence says why a state is not known. The words are those of policy.Reason.
type Absence string

const (
	// Known is the zero Absence: the state is there.
	Known Absence = ""
	// Warming: the collection has not loaded a state yet, or lost it and loads again.
	Warming Absence = "warming"
	// NotPermitted: the proxy's own rights do not allow the feed.
	NotPermitted Absence = "not-permitted"
	// Form: the upstream's lists and watches could not be reconciled byte for byte.
	Form Absence = "form"
	// Stale: the newest state is older than the bound.
	Stale Absence = "stale"
	// Ahead: the feed has not reached the revision yet.
	Ahead Absence = "ahead"
	// History: the revision is before the history, or in a gap between two spans.
	History Absence = "history"
	// Memory: the byte bound leaves no room for this collection.
	Memory Absence = "memory"
	// Schema: the resource's definition changed a moment ago, and bytes of both schemas are about.
	Schema Absence = "schema"
	// Upstream: the API servers behind the upstream changed a moment ago, or do not agree.
	Upstream Absence = "upstream"
	// Stopped: the collection was stopped.
	Stopped Absence = "stopped"
)

// Absences returns every Absence but Known.
func Absences() []Absence {
	return []Absence{Warming, NotPermitted, Form, Stale, Ahead, History, Memory, Schema, Upstream, Stopped}
}

// Span is an interval of revisions [From, To] over which a feed is known to be complete.
type Span struct {
	From, To uint64
}

// Contains reports whether the state at rev is known in this span.
func (s Span) Contains(rev uint64) bool { return s.From <= rev && rev <= s.To }

// View is what a collection knows at one moment. It is immutable.
type View struct {
	// absence is why there is no newest state; Known while a span is live.
	absence Absence
	// retired: there will be no other view.
	retired bool
	// epochs are those under which it was learned.
	epochs Epochs
	// spans, oldest first. While absence is Known the last one is live.
	spans []Span
	// heard is how new the newest state is: all that had been written by then is in it. It is when
	// the upstream was asked how far it is, by the last read whose answer the live span has reached.
	heard time.Time
	// versions of all spans, by revision.
	versions history
	// newest is the state at the live span's To.
	newest tree
	frame  *Frame
	// next is closed when a newer view has been published.
	next chan struct{}
}

// to is the end of the newest span, or 0.
func (v *View) to() uint64 { return endOf(v.spans) }

// endOf is the end of the newest of spans, or 0.
func endOf(spans []Span) uint64 {
	if len(spans) == 0 {
		return 0
	}
	return spans[len(spans)-1].To
}

// latest returns the newest state if it is at least atLeast, and as new as bound before now.
func (v *View) latest(now time.Time, bound time.Duration, atLeast uint64) (Snapshot, Absence) {
	switch {
	case v.absence != Known:
		return Snapshot{}, v.absence
	case Age(v.heard, now) >= bound:
		return Snapshot{}, Stale
	}
	if v.to() < atLeast {
		return Snapshot{}, Ahead
	}
	return Snapshot{Revision: v.to(), Frame: v.frame, Epochs: v.epochs, tree: v.newest, Heard: v.heard}, Known
}

// farAhead is more revisions than an etcd writes in any time for which a feed may be behind: minutes.
const farAhead = 1 << 22

// unlessNear returns an absence, but not Ahead of a revision that the feed may reach soon.
func (v *View) unlessNear(absence Absence, rev uint64) Absence {
	if absence == Ahead && rev-v.to() <= farAhead {
		return Known
	}
	return absence
}

// exact returns the state at rev.
func (v *View) exact(rev uint64) (Snapshot, Absence) {
	if absence := knows(v.spans, v.absence, rev); absence != Known {
		return Snapshot{}, absence
	}
	return v.stateAt(rev), Known
}

// knows says why the state at a revision is not known, where these spans are, and there is no newest state because
// of newest; Known if it is.
func knows(spans []Span, newest Absence, rev uint64) Absence {
	switch {
	case rev > endOf(spans):
		return cmp.Or(newest, Ahead)
	case slices.ContainsFunc(spans, func(s Span) bool { return s.Contains(rev) }):
		return Known
	}
	return History
}

// stateAt returns the state at a revision that one of the spans contains. The newest version
// at or before it is in the same span, since every span begins with a version.
func (v *View) stateAt(rev uint64) Snapshot {
	return Snapshot{Revision: rev, Frame: v.frame, Epochs: v.epochs, tree: v.versions.find(rev).tree}
}
