package snapshot

import (
	"cmp"
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Span is an interval of revisions [From, To] over which a feed is known to be complete.
type Span struct {
	From, To uint64
}

// contains reports whether the state at rev is known in this span.
func (s Span) contains(rev uint64) bool { return s.From <= rev && rev <= s.To }

// View is what a collection knows at one moment. It is immutable.
type View struct {
	// absence is why there is no newest state; [reason.None] while a span is live.
	absence reason.Reason
	// retired: there will be no other view.
	retired bool
	// epoch is the one in which it was learned.
	epoch uint64
	// spans, oldest first. While absence is [reason.None] the last one is live.
	spans []Span
	// heard is how new the newest state is: it has everything that was written by then. It is the time
	// when the upstream was asked for its current revision, for the last answer that the live span has
	// reached.
	heard freshness.Probe
	// versions of all spans, by revision.
	versions index.History
	// newest is the state at the live span's To.
	newest index.Tree
	frame  *wire.Frame
	// watches are the clients that follow the live span; nil if none may.
	watches *watch.Hub
	// streams: a stream is being read that goes on from the live span.
	streams bool
	// next is closed when there is another view; newer is closed when there is one with a later heard, or
	// without a state.
	next, newer chan struct{}
}

// with returns a copy with a change.
func (v *View) with(change func(*View)) *View {
	next := *v
	change(&next)
	return &next
}

// goal is a revision that the upstream had when it was asked, or later.
type goal struct {
	freshness.Probe
	revision uint64
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
func (v *View) latest(now time.Time, bound time.Duration, atLeast uint64) (Snapshot, reason.Reason) {
	switch {
	case v.absence != reason.None:
		return Snapshot{}, v.absence
	case clock.Age(v.heard.Sent, now) >= bound:
		return Snapshot{}, reason.Stale
	}
	if v.to() < atLeast {
		return Snapshot{}, reason.NotProven
	}
	return v.state(), reason.None
}

// notOlder is latest for those who ask for a state that is not older than a revision. Who names the
// newest one while no stream is read may have been told by the upstream that it is too old (410):
// then the upstream must answer, or the same state would be given, and refused, again and again.
func (v *View) notOlder(now time.Time, bound time.Duration, rev uint64) (Snapshot, reason.Reason) {
	snap, absence := v.latest(now, bound, rev)
	if absence == reason.None && !v.streams && rev == v.to() {
		return Snapshot{}, reason.NotProven
	}
	return snap, absence
}

// state is the newest state.
func (v *View) state() Snapshot {
	return Snapshot{
		Revision: v.to(), Frame: v.frame, epoch: v.epoch, tree: v.newest, watches: v.watches,
		Heard: v.heard.Sent,
	}
}

// farAhead is more revisions than an etcd writes in any time for which a feed may be behind:
// minutes.
const farAhead = 1 << 22

// tooFar says that a revision is so far ahead that it is not worth to wait for it.
func (v *View) tooFar(rev uint64) bool { return rev > v.to() && rev-v.to() > farAhead }

// exact returns the state at rev.
func (v *View) exact(rev uint64) (Snapshot, reason.Reason) {
	if absence := knows(v.spans, v.absence, rev); absence != reason.None {
		return Snapshot{}, absence
	}
	return v.stateAt(rev), reason.None
}

// knows says why spans do not have the state at rev; None if they do. absence is why there is no
// newest state, or None.
func knows(spans []Span, absence reason.Reason, rev uint64) reason.Reason {
	switch {
	case rev > endOf(spans):
		return cmp.Or(absence, reason.NotProven)
	case slices.ContainsFunc(spans, func(s Span) bool { return s.contains(rev) }):
		return reason.None
	}
	return reason.History
}

// stateAt returns the state at a revision that one of the spans contains. The newest version
// at or before it is in the same span, since every span begins with a version.
func (v *View) stateAt(rev uint64) Snapshot {
	return Snapshot{Revision: rev, Frame: v.frame, epoch: v.epoch, tree: v.versions.Find(rev).Tree}
}
