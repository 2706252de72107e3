package watch

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/listproxy/listproxy/snapshot/index"
)

// TestQuestions: one question whether a change may be told serves all clients. While the answer is no, the broadcaster
// asks again after a pause, however many changes come meanwhile, and no more once nobody waits for the answer.
func TestQuestions(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		all, idle := c.watchNamespace(100, "n1", Options{}), c.watchNamespace(1, "n2", Options{})[0]
		ended := make(chan time.Time, len(all))
		idle.take(t.Context())
		for _, w := range all {
			w.follow(t, ended)
		}
		synctest.Wait()
		asked := c.definition.asked.Load()
		expectAsked := func(most int64, when string) {
			t.Helper()
			if n := c.definition.asked.Load() - asked; n > most {
				t.Errorf("asked %d times %s, want %d at most", n, when, most)
			}
			asked = c.definition.asked.Load()
		}
		c.add("n1")
		synctest.Wait()
		expectAsked(1, "for one change")
		c.definition.doubtful.Store(true)
		for range 100 {
			c.add("n1")
			synctest.Wait()
		}
		expectAsked(2, "at once") // by a client, and by the broadcaster
		time.Sleep(definedTimeout + maxEndSpread + time.Second)
		for range all {
			<-ended
		}
		for _, w := range all {
			if len(w.events) != 1 || w.end != EndLost {
				t.Errorf("told %d events, and ended as %q", len(w.events), w.end)
			}
		}
		asked = c.definition.asked.Load()
		for range 100 {
			c.add("n1")
			time.Sleep(time.Second)
		}
		expectAsked(100, "for 100 changes for which nobody waits")
	})
}

// TestNothingPinned: an object that is no longer in the history is freed, though a client that goes on was told of it.
func TestNothingPinned(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		w := c.watch(index.Query{}, Options{After: c.span.To})
		pinned := func() weak.Pointer[index.Object] {
			o := c.object("n1", "x", "1", "", 11)
			c.state.Set(o)
			c.change(11, index.Change{After: o})
			c.add("n2")
			return weak.Make(o)
		}()
		synctest.Wait()
		if !w.take(t.Context()) || len(w.events) != 2 {
			t.Fatalf("told %q", w.events)
		}
		c.state, c.log = index.NewTree(true), nil
		c.span = Span{From: 12, To: 12}
		c.broadcaster.Publish(c.span)
		synctest.Wait()
		runtime.GC()
		if pinned.Value() != nil {
			t.Error("the object is in memory")
		}
		c.add("n1")
		synctest.Wait()
		w.Close(EndGone)
		synctest.Wait()
		if n := c.broadcaster.confirmed.Load().Versions.Len(); n > 0 {
			t.Errorf("without a client %d versions are held", n)
		}
	})
}

// TestBookmarkAfterDoubt: a bookmark is due while a change for which nobody waits is not confirmed. It is told once that
// may be, though nothing else happens.
func TestBookmarkAfterDoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		w := c.watchNamespace(1, "n1", Options{Bookmarks: true})[0]
		w.take(t.Context())
		c.definition.doubtful.Store(true)
		c.add("n2")
		synctest.Wait()
		c.definition.doubtful.Store(false)
		time.Sleep(bookmarkInterval + bookmarkJitter)
		synctest.Wait()
		for len(w.wake) > 0 {
			w.Wait(t.Context())
			w.take(t.Context())
		}
		if want := []bookmark{{at: c.span.To}}; !slices.Equal(w.bookmarks, want) {
			t.Errorf("bookmarks: %v, want %v", w.bookmarks, want)
		}
	})
}

// TestClearedWhileItLooks: a client that looks for a change while the change becomes confirmed is woken for it.
func TestClearedWhileItLooks(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		w := c.watchNamespace(1, "n1", Options{})[0]
		w.take(t.Context())
		c.definition.doubtful.Store(true)
		c.add("n1")
		synctest.Wait()
		w.Wait(t.Context())
		w.looking.Store(true) // as Take does
		due, span := w.due.Swap(0), c.broadcaster.confirmed.Load()
		time.Sleep(2 * definedPollInterval)
		c.definition.doubtful.Store(false)
		time.Sleep(2 * definedPollInterval)
		if w.replay(&Batch{}, span, due); len(w.wake) == 0 {
			t.Error("the client is not woken")
		}
		if !w.take(t.Context()) || len(w.events) != 1 {
			t.Errorf("told %q, want one event", w.events)
		}
	})
}

// TestBeginsBeforeItIsClear: a client that begins, and looks, just before a change is confirmed for which nobody waited
// is woken for it.
func TestBeginsBeforeItIsClear(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		gate := make(chan struct{})
		asks := func() bool {
			stands := c.definition.isKnown()
			if stands && c.broadcaster.dispatched.Load() > c.broadcaster.confirmed.Load().To {
				<-gate
			}
			return stands
		}
		c.watchNamespace(1, "n1", Options{Defined: asks})[0].take(t.Context())
		c.definition.doubtful.Store(true)
		c.add("n2")
		synctest.Wait()
		c.definition.doubtful.Store(false)
		w := c.watch(index.Query{Scope: index.Scope{Namespace: "n2"}}, Options{After: c.span.To - 1, Defined: asks})
		if w.take(t.Context()) {
			t.Errorf("told before it is confirmed: %q", w.events)
		}
		close(gate)
		synctest.Wait()
		if len(w.wake) == 0 {
			t.Error("the client is not woken")
		}
		if !w.take(t.Context()) || len(w.events) != 1 {
			t.Errorf("told %q, want one event", w.events)
		}
	})
}

// TestTightMemory: where the history is cut behind each change, before anybody has looked at it, no change is told
// without the question whether it may be, and a client that was to be told nothing goes on.
func TestTightMemory(t *testing.T) {
	for _, doubtful := range []bool{false, true} {
		inBubble(t, func(t *testing.T, c *cluster) {
			w, idle := c.watchNamespace(1, "n1", Options{})[0], c.watchNamespace(1, "n3", Options{})[0]
			w.take(t.Context())
			idle.take(t.Context())
			c.definition.doubtful.Store(doubtful)
			for range 3 {
				c.add("n1")
				c.trim(1)
			}
			synctest.Wait()
			if w.take(t.Context()) && doubtful {
				t.Errorf("told %q before it is confirmed", w.events)
			}
			if idle.take(t.Context()); idle.end != "" {
				t.Errorf("ended as %s", idle.end)
			}
		})
	}
}
