package watch

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/test/expect"
)

// TestEndsAreSpread: if 1800 watches of 20 broadcasters must end, each ends for the right reason, and they do not all end at
// once. No watch ends within minWatchLife after its client has got the initial state: client-go would list again.
func TestEndsAreSpread(t *testing.T) {
	const broadcasters, watchesEach = 20, 90
	const (
		shutdown            = 3 * time.Second // the watches must end within this time when the process ends
		latestEnd           = minWatchLife + maxEndSpread
		latestEndAtShutdown = minWatchLife + shutdown
		mostASecond         = 2 * endsPerSecond                  // broadcasters plan endsPerSecond, 200, on average
		mostASecondShutdown = broadcasters * watchesEach * 3 / 4 // evenly spread over shutdown, it would be a third
		anyNumberASecond    = broadcasters * watchesEach
	)
	for name, tt := range map[string]struct {
		cause            func(*fakeCluster) // makes the watches of one broadcaster end
		initialStateTime time.Duration      // the time that each client takes to read its initial state

		wantEnding      Ending        // "": EndLost or EndShutdown, whichever comes first
		wantNotBefore   time.Duration // each watch ends at this time after its client has got the initial state, or later
		wantNotAfter    time.Duration // and at this time, or earlier
		wantMostASecond int           // the most watches that may end in one second
		wantIdleGoOn    bool          // an idle watch, which has all changes that concern it, goes on; false: it may end
	}{
		"the history forgets the next change": {
			cause:         func(c *fakeCluster) { c.trim(1) },
			wantEnding:    EndBehind,
			wantNotBefore: minWatchLife, wantNotAfter: latestEnd, wantMostASecond: mostASecond,
			wantIdleGoOn: true,
		},
		"the state is lost": {
			cause:         func(c *fakeCluster) { c.broadcaster.End() },
			wantEnding:    EndLost,
			wantNotBefore: minWatchLife, wantNotAfter: latestEnd, wantMostASecond: mostASecond,
		},
		"the history forgets the next change, and the state is lost": {
			cause: func(c *fakeCluster) {
				c.trim(1)
				c.broadcaster.End()
			},
			wantEnding:    EndLost,
			wantNotBefore: minWatchLife, wantNotAfter: latestEnd, wantMostASecond: mostASecond,
		},
		"the state is lost, and all clients finish reading it later, at the same time": {
			cause:            func(c *fakeCluster) { c.broadcaster.End() },
			initialStateTime: maxEndSpread,
			wantEnding:       EndLost,
			wantNotBefore:    minWatchLife, wantNotAfter: latestEnd, wantMostASecond: anyNumberASecond,
		},
		"the state may be wrong": {
			cause:         func(c *fakeCluster) { c.broadcaster.Abort() },
			wantEnding:    EndLost,
			wantNotBefore: minWatchLife, wantNotAfter: latestEnd, wantMostASecond: mostASecond,
		},
		"IsDefined is false for longer than holdTimeout": {
			cause: func(c *fakeCluster) {
				c.definition.doubtful.Store(true)
				c.add("n1")
			},
			wantEnding:    EndLost,
			wantNotBefore: holdTimeout, wantNotAfter: holdTimeout + holdPollInterval + latestEnd, wantMostASecond: mostASecond,
			wantIdleGoOn: true,
		},
		"the process ends": {
			cause:         func(c *fakeCluster) { c.broadcaster.EndWithin(shutdown, EndShutdown) },
			wantEnding:    EndShutdown,
			wantNotBefore: minWatchLife, wantNotAfter: latestEndAtShutdown, wantMostASecond: mostASecondShutdown,
		},
		"the state is lost, and the process ends": {
			cause: func(c *fakeCluster) {
				c.broadcaster.End()
				c.broadcaster.EndWithin(shutdown, EndShutdown)
			},
			wantNotBefore: minWatchLife, wantNotAfter: latestEndAtShutdown, wantMostASecond: mostASecondShutdown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Each broadcaster has clients that lack two changes in their namespace, and an idle one in another namespace.
				var pacer Pacer // shared by all broadcasters
				var behind, idle []*watchClient
				for range broadcasters {
					c := newCluster(t, anySeed)
					c.broadcaster = NewBroadcaster(testForm(t), c.span, &Counts{}, &pacer)
					for range watchesEach {
						behind = append(behind, c.watchNamespace("n1", Options{}))
					}
					idleClient := c.watchNamespace("n3", Options{})
					idleClient.receive(t.Context())
					idle = append(idle, idleClient)
					c.add("n1")
					c.add("n1")
					synctest.Wait()
					tt.cause(c)
				}
				time.Sleep(tt.initialStateTime)
				synctest.Wait()

				// The clients have got their initial states. They read until their watches end.
				ended := map[time.Duration]int{} // the number of watches that have ended, by second
				for _, e := range readToTheEnd(t, behind) {
					ended[e.after.Truncate(time.Second)]++
					if tt.wantEnding != "" && e.ending != tt.wantEnding {
						t.Errorf("a watch: got the ending %q, want %q", e.ending, tt.wantEnding)
					}
					if e.after < tt.wantNotBefore || e.after > tt.wantNotAfter {
						t.Errorf("a watch ends %v after the initial state, want %v to %v", e.after, tt.wantNotBefore, tt.wantNotAfter)
					}
				}
				for second, n := range ended {
					if n > tt.wantMostASecond {
						t.Errorf("in the second after %v: got %d ended watches, want at most %d", second, n, tt.wantMostASecond)
					}
				}
				for _, client := range idle {
					if tt.wantIdleGoOn && client.phase.Load() != phaseOpen {
						t.Error("an idle watch ends, want it to go on")
					}
				}
			})
		})
	}
}

// watchEnd is how a watch ended, and how long after the client had got the initial state.
type watchEnd struct {
	ending Ending
	after  time.Duration
}

// readToTheEnd lets clients that have just got their initial states read until their watches end.
func readToTheEnd(t *testing.T, clients []*watchClient) []watchEnd {
	t.Helper()
	begunAt := time.Now()
	ends := make([]watchEnd, len(clients))
	var reading sync.WaitGroup
	for i, client := range clients {
		reading.Go(func() {
			client.InitialSent()
			client.receiveAll(t.Context())
			ending := client.AwaitEnd(t.Context(), client.end)
			client.Close(ending)
			ends[i] = watchEnd{ending: ending, after: time.Since(begunAt)}
		})
	}
	reading.Wait()
	return ends
}

// TestSlowState: if the history forgets changes after the initial state while a client still reads that state, the client may
// read on for initialStateTimeout. If the state may be wrong, the client must stop at once.
func TestSlowState(t *testing.T) {
	for name, tt := range map[string]struct {
		cause func(*fakeCluster)
		// The endings that AwaitDefined returns for a client whose initial state is three changes behind the newest one; "":
		// the client reads on.
		wantEarly Ending // until initialStateTimeout
		wantLate  Ending // after initialStateTimeout
		// wantNewest is the ending after initialStateTimeout of a client whose initial state was the newest.
		wantNewest Ending
	}{
		"nothing is forgotten":              {cause: func(*fakeCluster) {}},
		"one of the changes is forgotten":   {cause: func(c *fakeCluster) { c.trim(2) }, wantLate: EndBehind},
		"a state without history is loaded": {cause: (*fakeCluster).renew, wantLate: EndBehind, wantNewest: EndBehind},
		"the known states may be wrong": {
			cause:     func(c *fakeCluster) { c.broadcaster.Abort() },
			wantEarly: EndLost, wantLate: EndLost, wantNewest: EndLost,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *fakeCluster) {
				expectEnding := func(when string, client *watchClient, want Ending) {
					t.Helper()
					if got := client.AwaitDefined(t.Context()); got != want {
						t.Errorf("%s: got the ending %q, want %q", when, got, want)
					}
				}
				behind := c.watchNamespace("n1", Options{})
				for range 3 {
					c.add("elsewhere")
				}
				newest := c.watch(index.Query{}, Options{After: c.span.To})
				tt.cause(c)
				expectEnding("at first", behind, tt.wantEarly)
				time.Sleep(initialStateTimeout - time.Second)
				expectEnding("just before initialStateTimeout", behind, tt.wantEarly)
				time.Sleep(time.Second)
				expectEnding("after initialStateTimeout", behind, tt.wantLate)
				expectEnding("after initialStateTimeout, the newest state", newest, tt.wantNewest)
			})
		})
	}
}

// TestDrain: a client that reads slowly gets events of a lost history for drainTimeout, and no longer.
func TestDrain(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster) {
		// The history has 100 changes, each so large that a batch has only one. The client needs 200 s for all of them.
		const changes, readEvery = 100, 2 * time.Second
		client := c.watch(index.Query{}, Options{After: c.span.To})
		for range changes {
			revision := c.span.To + 1
			longName := strings.Repeat("x", batchSize)
			c.change(revision, index.Change{After: newPod(pod{namespace: "n1", name: longName}, revision)})
		}

		// The state is lost. By the end of the pause, the watch drains: it delivers only what is left.
		c.broadcaster.End()
		time.Sleep(minWatchLife + time.Second)
		begunAt := time.Now()
		for client.end == "" {
			client.receive(t.Context())
			time.Sleep(readEvery)
		}
		expect.Same(t, EndLost, client.end)
		if took := time.Since(begunAt); took > drainTimeout+2*readEvery {
			t.Errorf("the watch ends after %v, want at most about %v", took, drainTimeout)
		}
		if n := len(client.events); n == 0 || n == changes {
			t.Errorf("got %d of %d events, want some but not all", n, changes)
		}
	})
}

// TestNoBookmarkAtTheBeginning: a watch gets no bookmark at the revision after which it begins.
func TestNoBookmarkAtTheBeginning(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster) {
		client := c.watch(index.Query{}, Options{After: c.span.To, Bookmarks: true})
		time.Sleep(bookmarkInterval + bookmarkJitter)
		if client.receive(t.Context()) {
			t.Errorf("nothing has changed: got the bookmarks %v, want none", client.bookmarks)
		}
	})
}

// TestNothingPinned: an object that is no longer in the history is freed, even if a watch that has sent it goes on.
func TestNothingPinned(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster) {
		// The watch sends two objects. Only a weak pointer to the first one is kept.
		client := c.watch(index.Query{}, Options{After: c.span.To})
		c.add("n1")
		object := weak.Make(c.log[0].After)
		c.add("n2")
		synctest.Wait()
		if !client.receive(t.Context()) || len(client.events) != 2 {
			t.Fatalf("got %q, want two events", client.events)
		}

		// The cluster and the history forget the objects.
		c.state, c.log = index.NewTree(indexed), nil
		c.span = Span{From: c.span.To, To: c.span.To}
		c.broadcaster.Publish(c.span)
		synctest.Wait()
		runtime.GC()
		if object.Value() != nil {
			t.Error("the object is still in memory, want it freed")
		}
	})
}
