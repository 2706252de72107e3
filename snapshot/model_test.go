package snapshot

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
)

// The model is the trivial truth about one resource upstream: the list of all that ever happened to
// it. The state at a revision is what comes of replaying the list so far. Beside it stands what
// the feed has told the collection: one interval of revisions, as the rules of doc.go say, and when.
// A life (life_test.go) moves both, step by step, and asks the collection for what it knows.

const (
	modelHistory   = 256 * time.Second
	modelStaleness = 90 * time.Second
	// modelStart is the upstream's first revision.
	modelStart = 100
)

// modelKeys in their order: '-' sorts before '/'.
var modelKeys = []string{"a-b/x", "a-b/y", "a/0", "a/1", "a/10", "a/2", "a/3", "b/0", "b/1", "b/2", "b/3", "c/0"}

// happening is a change of one object upstream.
type happening struct {
	revision uint64
	key      int
	object   *index.Object // nil: it was deleted
}

// past is all that happened, in order.
type past []happening

// replay returns the objects at a revision, by the positions of their keys.
func (p past) replay(rev uint64) (state [16]*index.Object) {
	for _, h := range p {
		if h.revision > rev {
			break
		}
		state[h.key] = h.object
	}
	return state
}

// advance is a moment at which the collection was told of a revision.
type advance struct {
	revision uint64
	at       time.Time
	// first is true for the first of a moment: from then on history can be cut there.
	first bool
}

// model is what is true, and what was told.
type model struct {
	past past
	head uint64 // the upstream's newest revision

	// known: there is a state. told is what the feed has told of it.
	known    bool
	told     Interval
	advances []advance
	// currentAt is when the last probe was asked, or the state, whose revision was told; pendingProbes are all
	// that were asked since the state was.
	currentAt     time.Time
	pendingProbes []checkpoint
	// heads are the upstream's newest revisions, and from when on.
	heads []checkpoint
	// untold are changes that the stream has not told yet, because it is slow, or broken.
	slow, broken bool
	// out is the last time in which nobody answered upstream.
	out    clock.Outage
	untold []stateChange
	// cut is the revision before which the byte bound may have taken all, trimmed when history was
	// last cut by time.
	cut     uint64
	trimmed time.Time
}

// forget is what doubt does.
func (m *model) forget() {
	m.known, m.told, m.advances, m.cut = false, Interval{}, nil, 0
	m.anew()
}

// anew is a stream that begins with a state.
func (m *model) anew() { m.slow, m.broken, m.untold = false, false, nil }

// move says where the upstream is now.
func (m *model) move(head uint64) {
	m.head = head
	m.heads = append(m.heads, checkpoint{time.Now(), head})
}

// had is the newest revision that the upstream had some time ago.
func (m *model) had(ago time.Duration) (rev uint64) {
	for _, h := range m.heads {
		if time.Since(h.at) >= ago {
			rev = h.revision
		}
	}
	return rev
}

// open is a complete state at head.
func (m *model) open(asked time.Time) {
	m.anew()
	m.known, m.told = true, Interval{m.head, m.head}
	m.currentAt, m.pendingProbes, m.cut = asked, nil, 0
	m.advances = []advance{{m.head, time.Now(), true}}
}

// reach is an event or a bookmark at rev.
func (m *model) reach(rev uint64) {
	now := time.Now()
	m.told.To = rev
	n := len(m.advances)
	m.advances = append(m.advances, advance{rev, now, n == 0 || m.advances[n-1].at.Before(now)})
	for _, g := range m.pendingProbes {
		if g.revision <= rev && g.at.After(m.currentAt) {
			m.currentAt = g.at
		}
	}
}

// wanted says whether a revision that was told must still be known, or must be forgotten; between
// the two it may be either.
func (m *model) wanted(rev uint64) (must, mustNot bool) {
	reached := time.Time{}
	for _, a := range m.advances {
		if a.revision >= rev && reached.IsZero() {
			reached = a.at
		}
		if a.first && a.revision > rev && m.trimmed.Sub(a.at) >= modelHistory {
			mustNot = true
		}
	}
	return rev >= m.cut && m.trimmed.Sub(reached) < modelHistory, mustNot
}

// check asks for the newest state and for those at revs, and counts what is stored.
func (l *life) check(revs []uint64) error {
	v := l.c.view.Load()
	for _, rev := range revs {
		if err := l.checkExact(v, rev); err != nil {
			return err
		}
	}
	m := l.c.moment()
	// While nobody answers, and for a moment after that, the state gets no older; nor has it another timeline.
	judged := m.now
	if l.broken && l.out.Lasts && m.now.Sub(l.out.Heard) < modelStaleness ||
		l.broken && !l.out.Lasts && m.now.Sub(l.out.Ended) < 5*time.Second && l.out.Ended.Sub(l.out.Heard) < modelStaleness {
		judged = l.out.Heard
	}
	past := !l.broken || l.out.Lasts && m.now.Sub(l.out.Heard) < modelStaleness
	fresh := l.known && judged.Sub(l.currentAt) < modelStaleness
	s, unavailable := v.latest(m, l.told.To)
	switch {
	case fresh != (unavailable == reason.None):
		return fmt.Errorf("the newest state: %q; known is %v, currentAt %v ago", unavailable, l.known, time.Since(l.currentAt))
	case fresh && s.Revision < l.had(m.now.Sub(judged)+modelStaleness):
		return fmt.Errorf("the newest state is at %d, the upstream was at %d before the bound", s.Revision, l.had(modelStaleness))
	case fresh && s.Revision != l.told.To:
		return fmt.Errorf("the newest state is at %d, told was %d", s.Revision, l.told.To)
	case fresh:
		if err := l.same(s, l.past.replay(l.told.To)); err != nil {
			return fmt.Errorf("the newest state: %w", err)
		}
		for since, want := range map[uint64]bool{0: true, l.told.To - 1: past, l.told.To: past, l.told.To + 1: false} {
			switch _, unavailable := v.notOlder(m, since); {
			case want != (unavailable == reason.None), unavailable != reason.None && unavailable != reason.NotProven:
				return fmt.Errorf("the newest state, not older than %d: %q; told was %d, broken is %v", since, unavailable, l.told.To, l.broken)
			}
		}
	}
	if l.known {
		if err := l.checkKept(v, fresh && past); err != nil {
			return err
		}
	}
	if want, got := l.size(v), l.b.used.Load(); want != got {
		return fmt.Errorf("%d bytes are on the account, not %d", got, want)
	}
	return nil
}

// checkKept: who follows from Kept on is told all that happened after it, and nothing that happened
// before the state was loaded. Where nothing happens, Kept stays where it is. Nobody can follow from before,
// and everybody from there, if there is a state.
func (l *life) checkKept(v *View, state bool) error {
	live, last := v.span(), l.told
	kept, latest := live.RetainedAfter(), last.From
	var want, got []uint64
	for _, h := range l.past {
		if h.revision <= live.From {
			latest = max(latest, h.revision)
		}
		if kept < h.revision && h.revision <= live.To {
			want = append(want, h.revision)
		}
	}
	for i := live.Versions.FirstAfter(kept); i < live.Versions.Len(); i++ {
		version := live.Versions.At(i)
		if got = append(got, version.Revision); version.Change == (index.Change{}) {
			return fmt.Errorf("it is not known what changed at %d, after %d", version.Revision, kept)
		}
	}
	if !slices.Equal(want, got) || kept < last.From || kept > latest {
		return fmt.Errorf("after %d, changes are kept at %d, not at %d; the state was loaded at %d, and the interval begins at %d", kept, got, want, last.From, live.From)
	}
	for rev, want := range map[uint64]reason.Reason{kept - 1: reason.History, kept: reason.None} {
		if _, why := v.follow(l.c.moment(), rev, true); state && why != want {
			return fmt.Errorf("to follow from %d: %q, want %q; changes are kept after %d", rev, why, want, kept)
		}
	}
	return nil
}

func (l *life) checkExact(v *View, rev uint64) error {
	m := l.c.moment()
	out := l.out.Lasts && m.now.Sub(l.out.Heard) < modelStaleness
	known := l.known && (!l.broken || out) && l.told.From <= rev && rev <= l.told.To
	s, unavailable := v.exact(m, rev)
	must, mustNot := l.wanted(rev)
	switch {
	case unavailable == reason.None && !known:
		return fmt.Errorf("revision %d is answered, of which nothing was told", rev)
	case unavailable == reason.None && mustNot:
		return fmt.Errorf("revision %d is answered, which is older than the history", rev)
	case unavailable == reason.None:
		if s.Revision != rev {
			return fmt.Errorf("revision %d is answered as %d", rev, s.Revision)
		}
		if err := l.same(s, l.past.replay(rev)); err != nil {
			return fmt.Errorf("at revision %d: %w", rev, err)
		}
	case known && must:
		return fmt.Errorf("revision %d is absent: %s", rev, unavailable)
	case l.known && rev > l.told.To && unavailable != reason.NotProven:
		return fmt.Errorf("revision %d is not there yet, and absent as %q", rev, unavailable)
	}
	return nil
}

// size is what the account must say: the objects at the beginning of the interval, and what came
// since.
func (l *life) size(v *View) int64 {
	size, state := int64(0), l.past.replay(v.From)
	for _, o := range state {
		if o != nil {
			size += o.Size()
		}
	}
	for _, h := range l.past {
		if v.From < h.revision && h.revision <= v.To {
			size += v.newest.VersionSize(state[h.key] != nil && h.object != nil)
			state[h.key] = h.object
			if h.object != nil {
				size += h.object.Size()
			}
		}
	}
	return size
}

// same holds a snapshot against the objects that it must have. (What pages and selectors choose of these is a
// matter of package index.)
func (l *life) same(s Snapshot, want [16]*index.Object) error {
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

// modelObject makes an object whose bytes are of a revision and a manner of writing.
func modelObject(key int, rev uint64, random byte) *index.Object {
	return index.NewObject(0, modelKeys[key], rev, strconv.AppendUint(make([]byte, random%50), rev, 10))
}
