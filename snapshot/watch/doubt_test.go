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

// TestDefinedCalls: usually one call of Defined serves all clients to which a change must be delivered. While the
// result is false, each of these clients calls it again after a pause, however many changes come meanwhile, and ends in
// the end. Changes that are not to be delivered need no call.
func TestDefinedCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		const clients, changes = 100, 100
		all, idle := c.watchNamespace(clients, "n1", Options{}), c.watchNamespace(1, "n2", Options{})[0]
		ended := make(chan time.Time, clients)
		idle.take(t.Context())
		for _, w := range all {
			w.follow(t, ended)
		}
		synctest.Wait()
		called := c.definition.calls.Load()
		expectCalls := func(most int64, when string) {
			t.Helper()
			if n := c.definition.calls.Load() - called; n > most {
				t.Errorf("%d calls of Defined %s, want at most %d", n, when, most)
			}
			called = c.definition.calls.Load()
		}
		c.add("n1")
		synctest.Wait()
		expectCalls(clients/2, "for one change") // one, and those that began before it had returned
		c.definition.doubtful.Store(true)
		for range changes {
			c.add("n1")
			synctest.Wait()
		}
		expectCalls(2*clients, "at once")
		time.Sleep(definedTimeout + maxEndSpread + time.Second)
		for range all {
			<-ended
		}
		for _, w := range all {
			if len(w.events) != 1 || w.end != EndLost {
				t.Errorf("got %d events and the ending %q, want 1 and %q", len(w.events), w.end, EndLost)
			}
		}
		expectCalls(2*clients*int64(definedTimeout/definedPollInterval), "until all have ended")
		for range changes {
			c.add("n1")
			time.Sleep(time.Second)
		}
		expectCalls(0, "for changes that no client is waiting for")
	})
}

// TestNothingPinned: an object that is no longer in the history is freed, though a client that goes on has got it.
func TestNothingPinned(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		w := c.watch(index.Query{}, Options{After: c.span.To})
		object := func() weak.Pointer[index.Object] {
			c.add("n1")
			object := c.log[0].After
			c.add("n2")
			return weak.Make(object)
		}()
		synctest.Wait()
		if !w.take(t.Context()) || len(w.events) != 2 {
			t.Fatalf("got %q, want two events", w.events)
		}
		c.state, c.log = index.NewTree(true), nil
		c.span = Span{From: c.span.To, To: c.span.To}
		c.broadcaster.Publish(c.span)
		synctest.Wait()
		runtime.GC()
		if object.Value() != nil {
			t.Error("the object is still in memory")
		}
	})
}

// TestBookmarkAfterDoubt: a bookmark that is due while Defined is false is delivered soon after it is true again,
// though nothing else happens.
func TestBookmarkAfterDoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		w := c.watchNamespace(1, "n1", Options{Bookmarks: true})[0]
		w.take(t.Context())
		c.definition.doubtful.Store(true)
		c.add("n2")
		time.Sleep(bookmarkInterval + bookmarkJitter)
		if w.take(t.Context()) {
			t.Errorf("bookmarks %v while Defined is false, want none", w.bookmarks)
		}
		c.definition.doubtful.Store(false)
		w.Wait(t.Context()) // for the timer that woke it
		w.Wait(t.Context()) // for the pause between two calls
		w.take(t.Context())
		if want := []bookmark{{revision: c.span.To}}; !slices.Equal(w.bookmarks, want) {
			t.Errorf("bookmarks %v, want %v", w.bookmarks, want)
		}
	})
}

// TestTightMemory: if the history is cut after each change, before a client has got the change, nothing is delivered while
// Defined is false, and a watch that no change concerns goes on.
func TestTightMemory(t *testing.T) {
	for _, doubtful := range []bool{false, true} {
		inBubble(t, func(t *testing.T, c *cluster) {
			w := c.watchNamespace(1, "n1", Options{})[0]
			unconcerned := c.watchNamespace(1, "n3", Options{})[0]
			w.take(t.Context())
			unconcerned.take(t.Context())
			c.definition.doubtful.Store(doubtful)
			for range 3 {
				c.add("n1")
				c.trim(1)
			}
			synctest.Wait()
			if w.take(t.Context()) && doubtful {
				t.Errorf("got %q while Defined is false", w.events)
			}
			if unconcerned.take(t.Context()); unconcerned.end != "" {
				t.Errorf("a watch that no change concerns ends as %s", unconcerned.end)
			}
		})
	}
}
