package watch

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/listproxy/listproxy/snapshot/index"
)

// TestIsDefinedCalls: each client for whom there is a change calls IsDefined, and no other client does. While it is false, each
// client calls it once in each holdPollInterval, however many changes come, and ends after holdTimeout.
func TestIsDefinedCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster) {
		const clients, changes = 100, 100
		elsewhere := c.watchNamespace("n2", Options{})
		elsewhere.receive(t.Context()) // the beginning
		var all []*watchClient
		var reading sync.WaitGroup
		for range clients {
			w := c.watchNamespace("n1", Options{})
			all = append(all, w)
			reading.Go(func() { w.receiveAll(t.Context()) })
		}
		synctest.Wait()
		callsBefore := c.definition.calls.Load()
		expectCalls := func(most int64, when string) {
			t.Helper()
			calls := c.definition.calls.Load()
			if n := calls - callsBefore; n > most {
				t.Errorf("%s: got %d calls of IsDefined, want at most %d", when, n, most)
			}
			callsBefore = calls
		}
		c.add("n1")
		synctest.Wait()
		expectCalls(clients, "one change")
		c.definition.doubtful.Store(true)
		for range changes {
			c.add("n1")
			synctest.Wait()
		}
		expectCalls(2*clients, "many changes while IsDefined is false") // of each client: at the first change, and one in progress
		time.Sleep(holdTimeout + maxEndSpread + time.Second)
		reading.Wait()
		for _, w := range all {
			w.Close(w.end)
			if len(w.events) != 1 || w.end != EndLost {
				t.Errorf("a client got %d events and the ending %q, want 1 and %q", len(w.events), w.end, EndLost)
			}
		}
		expectCalls(2*clients*int64(holdTimeout/holdPollInterval), "until all clients have ended")
		for range changes {
			c.add("n1")
			time.Sleep(time.Second)
		}
		expectCalls(0, "changes that concern no client")
	})
}

// TestNothingPinned: an object that is no longer in the history is freed, though a watch that goes on has sent it.
func TestNothingPinned(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster) {
		w := c.watch(index.Query{}, Options{After: c.span.To})
		c.add("n1")
		object := weak.Make(c.log[0].After) // the added object
		c.add("n2")
		synctest.Wait()
		if !w.receive(t.Context()) || len(w.events) != 2 {
			t.Fatalf("got %q, want two events", w.events)
		}
		c.state, c.log = index.NewTree(true), nil
		c.span = Span{From: c.span.To, To: c.span.To}
		c.broadcaster.Publish(c.span)
		synctest.Wait()
		runtime.GC()
		if object.Value() != nil {
			t.Error("the object is still in memory, want it freed")
		}
	})
}

// TestBookmarkAfterDoubt: a bookmark that is due while IsDefined is false is delivered soon after IsDefined is true again, though
// nothing else happens.
func TestBookmarkAfterDoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster) {
		w := c.watchNamespace("n1", Options{Bookmarks: true})
		w.receive(t.Context()) // the beginning
		c.definition.doubtful.Store(true)
		c.add("n2")
		time.Sleep(bookmarkInterval + bookmarkJitter)
		if w.receive(t.Context()) {
			t.Errorf("while IsDefined is false: got the bookmarks %v, want none", w.bookmarks)
		}
		c.definition.doubtful.Store(false)
		w.Wait(t.Context()) // wakes for the bookmark's timer
		w.Wait(t.Context()) // wakes after holdPollInterval, to call IsDefined again
		w.receive(t.Context())
		if want := []bookmark{{revision: c.span.To}}; !slices.Equal(w.bookmarks, want) {
			t.Errorf("after that: got the bookmarks %v, want %v", w.bookmarks, want)
		}
	})
}
