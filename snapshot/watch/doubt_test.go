package watch

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A doubt is a time in which [Options].IsDefined returns false: the definition of the resource may have changed. Nothing may be
// delivered in a doubt.

// TestIsDefinedCalls: each client for whom there is a change calls IsDefined, and no other client does. In a doubt, each such
// client calls IsDefined once in each holdPollInterval, however many changes come. After holdTimeout, its watch ends.
func TestIsDefinedCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster) {
		const clients, changes = 100, 100

		// All clients but one watch the namespace n1. The first Take of each calls IsDefined in any case. It is over before the
		// calls are counted.
		elsewhere := c.watchNamespace("n2", Options{})
		elsewhere.receive(t.Context())
		var inN1 []*watchClient
		var reading sync.WaitGroup
		for range clients {
			client := c.watchNamespace("n1", Options{})
			inN1 = append(inN1, client)
			reading.Go(func() { client.receiveAll(t.Context()) })
		}
		synctest.Wait()
		expectAtMostCalls := func(when string, most int64, do func()) {
			t.Helper()
			before := c.definition.calls.Load()
			do()
			if n := c.definition.calls.Load() - before; n > most {
				t.Errorf("%s: got %d calls of IsDefined, want at most %d", when, n, most)
			}
		}

		expectAtMostCalls("one change without a doubt", clients, func() {
			c.add("n1")
			synctest.Wait()
		})

		// A doubt begins. Each client calls IsDefined at the first change, and may have one more call in progress.
		c.definition.doubtful.Store(true)
		expectAtMostCalls("many changes at once in the doubt", 2*clients, func() {
			for range changes {
				c.add("n1")
				synctest.Wait()
			}
		})

		// The clients wait until holdTimeout, and then for their turn to end. Until then they call IsDefined about 300 times
		// each: once in each holdPollInterval, 100 ms, of holdTimeout, 30 s. Twice that is allowed.
		const callsOfEach = 2 * int64(holdTimeout/holdPollInterval)
		expectAtMostCalls("until all watches have ended", clients*callsOfEach, func() {
			time.Sleep(holdTimeout + maxEndSpread + time.Second)
			reading.Wait()
			for _, client := range inN1 {
				client.Close(client.end)
				if len(client.events) != 1 || client.end != EndLost {
					t.Errorf("a client got %d events and the ending %q, want 1 and %q", len(client.events), client.end, EndLost)
				}
			}
		})

		expectAtMostCalls("changes that concern no client", 0, func() {
			for range changes {
				c.add("n1")
				time.Sleep(time.Second)
			}
		})
	})
}

// TestBookmarkAfterDoubt: a bookmark that was due in a doubt is delivered within holdPollInterval after the doubt, though
// nothing else happens.
func TestBookmarkAfterDoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster) {
		client := c.watchNamespace("n1", Options{Bookmarks: true})
		client.receive(t.Context()) // the first Take gets nothing: there is no change yet

		c.definition.doubtful.Store(true)
		c.add("n2")
		time.Sleep(bookmarkInterval + bookmarkJitter)
		if client.receive(t.Context()) {
			t.Errorf("in the doubt: got the bookmarks %v, want none", client.bookmarks)
		}

		c.definition.doubtful.Store(false)
		client.Wait(t.Context()) // The bookmark's timer has fired.
		client.Wait(t.Context()) // holdPollInterval is over: IsDefined is to be called again.
		client.receive(t.Context())
		if want := []bookmark{{revision: c.span.To}}; !slices.Equal(client.bookmarks, want) {
			t.Errorf("after the doubt: got the bookmarks %v, want %v", client.bookmarks, want)
		}
	})
}
