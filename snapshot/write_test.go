package snapshot

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/budget"
	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// liveCollection is a collection with one object, ns/a, at revision 10.
func liveCollection(limits Limits) *Collection {
	c := newCollection(Resource{}, limits, &budget.Bound{}, nil, &freshness.Numbers{})
	state := index.NewTree(false)
	state.Set(&index.Object{Key: "ns/a", Revision: 10})
	c.load(state, 10)
	return c
}

// load begins with a state, whose stream is read then.
func (c *Collection) load(state index.Tree, rev uint64) {
	c.open(complete{state: state, revision: rev, frame: wire.FixedFrame("PodList", "v1"), Probe: c.probes.Next()})
	c.follows(true)
}

// at is a probe that was sent at a time.
func (c *Collection) at(asked time.Time) freshness.Probe {
	return freshness.Probe{Number: c.probes.Next().Number, Sent: asked}
}

func TestRevisionsThatGoBack(t *testing.T) {
	c := liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
	var back anotherPastError
	if err := c.progress(9); !errors.As(err, &back) {
		t.Errorf("a bookmark before the newest state: got %v", err)
	}
	for _, rev := range []uint64{9, 10 + aDay + 1} {
		if err := c.observe(rev, c.floor()); !errors.As(err, &back) {
			t.Errorf("a read of revision %d: got %v", rev, err)
		}
	}
	if err := c.observe(10+aDay, 10); err != nil {
		t.Errorf("a read after a day: %v", err)
	}
	c = liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
	floor := c.floor()
	expect.NoError(t, c.progress(20))
	// The stream may pass a read that is under way; that is no step back.
	if err := c.observe(15, floor); err != nil || !c.expect(probed{15, c.at(time.Now())}) {
		t.Errorf("a read that the stream has passed: %v", err)
	}
	if err := c.observe(25, c.floor()); err != nil || c.expect(probed{25, c.at(time.Now())}) {
		t.Errorf("a read ahead of the stream: %v", err)
	}
	if got := c.floor(); got != 25 {
		t.Errorf("the floor is %d, want what was read, 25", got)
	}
}

func TestWaitIsBoundedAndTellsTheFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute, Wait: 100 * time.Millisecond})
		begun := time.Now()
		if _, absence := c.Latest(t.Context(), 11); absence != reason.NotProven {
			t.Errorf("got %q, want %q", absence, reason.NotProven)
		}
		if waited := time.Since(begun); waited != c.limits.Wait {
			t.Errorf("waited %v, want %v", waited, c.limits.Wait)
		}
		select {
		case <-c.probeRequests:
		default:
			t.Error("the feed was not told")
		}

		time.AfterFunc(50*time.Millisecond, func() {
			if err := c.progress(12); err != nil {
				t.Error(err)
			}
		})
		begun = time.Now()
		snap, absence := c.Exact(t.Context(), 12)
		if absence != reason.None || snap.Revision != 12 || time.Since(begun) != 50*time.Millisecond {
			t.Errorf("got %q at %d after %v, want the state at 12 after 50ms", absence, snap.Revision, time.Since(begun))
		}

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		begun = time.Now()
		if _, absence := c.Exact(ctx, 13); absence != reason.NotProven || time.Since(begun) != time.Millisecond {
			t.Errorf("a client that left: %q after %v", absence, time.Since(begun))
		}
	})
}

func TestByteBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollection(Resource{}, Limits{History: time.Hour, Staleness: time.Hour}, &budget.Bound{Limit: 100_000}, nil, &freshness.Numbers{})
		state := index.NewTree(false)
		o := &index.Object{Key: "ns/a", Revision: 1, Bytes: make([]byte, 1000)}
		state.Set(o)
		c.budget.Add(o.Size())
		c.open(complete{state: state, size: o.Size(), revision: 1, frame: wire.FixedFrame("PodList", "v1"), Probe: c.probes.Next()})
		for rev := uint64(2); rev < 500; rev++ {
			time.Sleep(time.Minute)
			err := c.apply(change{kind: wire.Modified, key: "ns/a", revision: rev, object: &index.Object{Key: "ns/a", Revision: rev, Bytes: make([]byte, 1000)}})
			expect.NoError(t, err)
			if c.budget.Full() {
				t.Fatalf("revision %d: %d bytes are stored, the bound is %d", rev, c.budget.Used.Load(), c.budget.Limit)
			}
			if _, absence := c.view.Load().exact(rev); absence != reason.None {
				t.Fatalf("revision %d: %s", rev, absence)
			}
		}
		if from := c.view.Load().From; from == 1 {
			t.Error("the history was never shortened")
		}
		big := &index.Object{Key: "ns/a", Revision: 600, Bytes: make([]byte, 200_000)}
		if err := c.apply(change{kind: wire.Modified, key: "ns/a", revision: 600, object: big}); !errors.Is(err, errFull) {
			t.Errorf("what does not fit at all: %v, want %v", err, errFull)
		}
	})
}

// whyRetired says why the collection was given up; None if it was not.
func (c *Collection) whyRetired() reason.Reason {
	if v := c.view.Load(); v.retired {
		return v.absence
	}
	return reason.None
}

// TestRetired: what was looked up in a collection before it was given up can be told from what
// holds.
func TestRetired(t *testing.T) { synctest.Test(t, testRetired) }

func testRetired(t *testing.T) {
	c := liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
	if why := c.whyRetired(); why != reason.None {
		t.Errorf("a live one: %q", why)
	}
	c.drop(reason.Warming)
	if why := c.whyRetired(); why != reason.None {
		t.Errorf("one that lost its state: %q", why)
	}
	c.retire(reason.Upstream)
	c.retire(reason.Memory)
	c.load(index.NewTree(false), 99)
	c.drop(reason.Warming)
	if why := c.whyRetired(); why != reason.Upstream {
		t.Errorf("one that was given up: %q, want %q", why, reason.Upstream)
	}
	asked := time.Now()
	if why := c.AwaitLoad(t.Context(), time.Minute, false); why != reason.Upstream || time.Since(asked) != 0 {
		t.Errorf("a state that will not come is waited for: %q after %v", why, time.Since(asked))
	}
}

// TestDoubt: what was taken from a collection, and is still to be written, must be what it would
// give now.
func TestDoubt(t *testing.T) {
	at := func(c *Collection, exact bool) Snapshot {
		t.Helper()
		s, absence := c.Latest(t.Context(), 0)
		if exact {
			s, absence = c.Exact(t.Context(), 10)
		}
		if absence != reason.None {
			t.Fatalf("no state: %q", absence)
		}
		return s
	}
	newer := change{kind: wire.Modified, key: "ns/a", revision: 11, object: &index.Object{Key: "ns/a", Revision: 11}}
	for name, tt := range map[string]struct {
		then          func(*Collection)
		latest, exact reason.Reason
	}{
		"nothing":            {func(*Collection) {}, reason.None, reason.None},
		"a change":           {func(c *Collection) { _ = c.apply(newer) }, reason.None, reason.None},
		"a minute":           {func(*Collection) { time.Sleep(time.Minute) }, reason.Stale, reason.None},
		"less than a minute": {func(*Collection) { time.Sleep(time.Minute - 1) }, reason.None, reason.None},
		"the stream ends":    {func(c *Collection) { c.follows(false) }, reason.None, reason.None},
		"all is dropped":     {func(c *Collection) { c.drop(reason.Warming) }, reason.Warming, reason.Warming},
		"it is given up":     {func(c *Collection) { c.retire(reason.Upstream) }, reason.Upstream, reason.Upstream},
		"dropped, and read anew": {func(c *Collection) {
			c.drop(reason.Warming)
			c.load(index.NewTree(false), 99)
		}, reason.History, reason.History},
		"read anew":                      {func(c *Collection) { c.load(index.NewTree(false), 99) }, reason.History, reason.History},
		"read anew at the same revision": {func(c *Collection) { c.load(index.NewTree(false), 10) }, reason.Warming, reason.Warming},
	} {
		inBubble(t, name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
			latest, exact := at(c, false), at(c, true)
			tt.then(c)
			if got := c.Validity().WhyNot(latest, time.Now()); got != tt.latest {
				t.Errorf("the newest state: %q, want %q", got, tt.latest)
			}
			if got := c.Validity().WhyNot(exact, time.Now()); got != tt.exact {
				t.Errorf("an exact one: %q, want %q", got, tt.exact)
			}
		})
	}
}

// TestFarAhead: nobody waits for a revision that cannot come soon.
func TestFarAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = time.Second
		c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute, Wait: wait})
		for rev, want := range map[uint64]time.Duration{10: 0, 11: wait, 10 + farAhead: wait, 11 + farAhead: 0, 1<<63 - 1: 0} {
			for name, ask := range map[string]func(context.Context, uint64) (Snapshot, reason.Reason){
				"newer than": c.Latest,
				"exactly":    c.Exact,
				"following": func(ctx context.Context, rev uint64) (Snapshot, reason.Reason) {
					return c.Follow(ctx, rev, true, wait)
				},
			} {
				asked := time.Now()
				if _, why := ask(t.Context(), rev); (why == reason.NotProven) != (rev > 10) || time.Since(asked) != want {
					t.Errorf("%s %d: %q after %v, want %v", name, rev, why, time.Since(asked), want)
				}
			}
		}
	})
}
