package snapshot

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// model is the trivial truth: every state at every revision, and what the feed has covered.
type model struct {
	states map[uint64]map[string]uint64 // state after each revision of the upstream's history
	head   uint64                       // the upstream's newest revision
	now    map[string]uint64            // the upstream's state
	// reached says when each revision was first covered by the feed.
	reached map[uint64]time.Time
}

func (m *model) record() { m.states[m.head] = maps.Clone(m.now) }

// TestCollectionAgainstModel drives a collection through random lives (changes, bookmarks,
// lost spans, reloads, poison, time) and asks it for every revision: what it answers must be
// the truth, it must answer all that it was told within the history, and nothing else.
func TestCollectionAgainstModel(t *testing.T) {
	const history = 100 * time.Second
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { liveRandomly(t, seed, history) })
		})
	}
}

func liveRandomly(t *testing.T, seed uint64, history time.Duration) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	b := &budget{}
	c := newCollection(Resource{}, Limits{History: history, Silence: time.Hour}, b)
	frame := &Frame{kind: "PodList"}
	m := &model{states: map[uint64]map[string]uint64{}, now: map[string]uint64{}, reached: map[uint64]time.Time{}}
	m.head = 100
	m.record()
	var live bool

	// change makes the upstream change one object, or only its revision.
	change := func() (change, bool) {
		m.head++
		defer m.record()
		if rnd.IntN(4) == 0 {
			return change{}, false // a change of another resource
		}
		key := fmt.Sprintf("ns/%d", rnd.IntN(12))
		_, there := m.now[key]
		if there && rnd.IntN(3) == 0 {
			delete(m.now, key)
			return change{kind: deleted, key: key, revision: m.head}, true
		}
		m.now[key] = m.head
		kind := added
		if there {
			kind = modified
		}
		return change{kind: kind, key: key, revision: m.head, object: &Object{Key: key, Revision: m.head, Bytes: make([]byte, m.head%50)}}, true
	}
	cover := func(from, to uint64) {
		for rev := from; rev <= to; rev++ {
			m.reached[rev] = time.Now()
		}
	}
	for range 400 {
		to := c.view.Load().to()
		switch p := rnd.IntN(100); {
		case p < 60: // the upstream changes; a live feed sees it
			ch, visible := change()
			if live && visible {
				if err := c.apply(ch); err != nil {
					t.Fatal(err)
				}
				cover(to+1, m.head)
			}
		case p < 75: // a bookmark
			if live {
				if err := c.progress(m.head); err != nil {
					t.Fatal(err)
				}
				cover(to+1, m.head)
			}
		case p < 85:
			time.Sleep(time.Duration(rnd.IntN(30)) * time.Second)
			c.trim(time.Now())
		case p < 90: // the stream is lost
			if live {
				c.close(Warming)
				live = false
			}
		case p < 92: // doubt
			c.drop(Warming)
			live = false
			clear(m.reached)
		default: // a complete state
			if !live {
				state, size := newTree(false), int64(0)
				for key, rev := range m.now {
					o := &Object{Key: key, Revision: rev, Bytes: make([]byte, rev%50)}
					state.set(o)
					size += o.size()
				}
				if to == m.head {
					continue
				}
				b.add(size)
				c.open(state, size, m.head, frame)
				cover(m.head, m.head)
				live = true
			}
		}
		checkAgainst(t, c, m, live, history)
	}
	if live {
		// Without its past, a collection is accounted for what it holds now.
		for v := c.view.Load(); len(v.spans) > 1 || v.spans[0].From < v.to(); v = c.view.Load() {
			c.shorten()
		}
		want := int64(0)
		c.view.Load().newest.ascend("", "", func(o *Object) bool { want += o.size(); return true })
		if got := b.used.Load(); got != want {
			t.Errorf("%d bytes are on the account, the objects are %d", got, want)
		}
	}
	c.drop(Stopped)
	if left := b.used.Load(); left != 0 {
		t.Errorf("%d bytes are still on the account of a collection that holds nothing", left)
	}
}

func checkAgainst(t *testing.T, c *Collection, m *model, live bool, history time.Duration) {
	t.Helper()
	v := c.view.Load()
	for rev := uint64(99); rev <= m.head+2; rev++ {
		snap, absence := v.exact(rev)
		at, told := m.reached[rev]
		if absence == Known {
			if !told {
				t.Fatalf("revision %d is answered, but nothing was heard of it", rev)
			}
			if diff := cmp.Diff(m.states[rev], contents(snap)); diff != "" {
				t.Fatalf("revision %d (-want +got):\n%s", rev, diff)
			}
		} else if told && time.Since(at) < history {
			t.Fatalf("revision %d was reached %v ago and is absent: %s", rev, time.Since(at), absence)
		}
	}
	snap, absence := v.latest(time.Now(), c.limits.Silence, 0)
	if (absence == Known) != live {
		t.Fatalf("live is %v, the newest state %q", live, absence)
	}
	if live {
		if diff := cmp.Diff(m.states[snap.Revision], contents(snap)); diff != "" {
			t.Fatalf("newest state at %d (-want +got):\n%s", snap.Revision, diff)
		}
	}
}

func contents(s Snapshot) map[string]uint64 {
	got := map[string]uint64{}
	for _, o := range s.Page(Query{}, nil).Objects {
		got[o.Key] = o.Revision
	}
	return got
}
