package snapshot

import (
	"testing"
	"testing/synctest"
	"time"
)

// After a broken stream was resumed it tells what has happened long ago. That is no sign of life: the
// newest state is given again when the span has come to where the upstream was.
func TestOldEventsAreNoSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 6 * time.Second
		c := liveCollection(Limits{History: time.Hour, Silence: bound})
		latest := func() Absence {
			_, absence := c.Latest(t.Context(), 0)
			return absence
		}
		tell := func(rev uint64) {
			t.Helper()
			if err := c.apply(change{kind: modified, key: "ns/a", revision: rev, object: &Object{Key: "ns/a", Revision: rev}}); err != nil {
				t.Fatal(err)
			}
		}
		tell(11)
		if got := latest(); got != Known {
			t.Fatalf("a live span: %q", got)
		}
		time.Sleep(10 * bound) // of the bubble: the connection is dead
		c.catchUp(30)
		for _, rev := range []uint64{12, 29} {
			tell(rev)
			if got := latest(); got != Stale {
				t.Errorf("at revision %d of 30, a minute old: %q, want %q", rev, got, Stale)
			}
			if _, absence := c.Exact(t.Context(), rev); absence != Known {
				t.Errorf("exactly revision %d: %q", rev, absence)
			}
		}
		tell(31)
		if got := latest(); got != Known {
			t.Errorf("beyond revision 30: %q", got)
		}
		time.Sleep(bound)
		if err := c.progress(31); err != nil {
			t.Fatal(err)
		}
		if got := latest(); got != Known {
			t.Errorf("after a later bookmark: %q", got)
		}
	})
}

// A state that was loaded since is new, whatever was to be caught up with before.
func TestLoadedStatesAreNew(t *testing.T) {
	c := liveCollection(Limits{History: time.Hour, Silence: time.Hour})
	c.catchUp(1000)
	c.drop(Warming)
	state := newTree(false)
	c.open(state, 0, 20, &Frame{})
	if c.behind != 0 {
		t.Errorf("%d is still to be caught up with", c.behind)
	}
}
