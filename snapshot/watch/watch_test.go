package watch

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/test/expect"
)

// TestEndsAreSpread: if many watches of several broadcasters must end, they end for the right reason, and not all at once. No
// watch ends within minWatchLife after its client got the state, or client-go would list anew.
func TestEndsAreSpread(t *testing.T) {
	const broadcasters, watchesEach = 20, 90
	const watches = broadcasters * watchesEach
	const (
		shutdown          = 3 * time.Second
		mostAtShutdown    = watches * 3 / 4 // in one second; evenly spread, it would be a third
		mostPerSecond     = 2 * endsPerSecond
		allWithin         = minWatchLife + maxEndSpread
		allWithinShutdown = minWatchLife + shutdown
	)
	for name, tt := range map[string]struct {
		cause        func(*fakeCluster)
		stateTime    time.Duration // how long each client reads its state
		want         Ending        // "": not checked, since EndLost and EndShutdown may both come first
		earliest     time.Duration // no watch ends before it
		latest       time.Duration // no watch ends after it
		maxPerSecond int           // the most watches that may end in one second
		idleMustGoOn bool          // watches that have all changes go on; false: they may end
	}{
		"the history forgets the next change": {
			cause: func(c *fakeCluster) { c.trim(1) },
			want:  EndBehind, earliest: minWatchLife, latest: allWithin, maxPerSecond: mostPerSecond, idleMustGoOn: true,
		},
		"the state is lost": {
			cause: func(c *fakeCluster) { c.broadcaster.End() },
			want:  EndLost, earliest: minWatchLife, latest: allWithin, maxPerSecond: mostPerSecond,
		},
		"the history forgets the next change, and the state is lost": {
			cause: func(c *fakeCluster) {
				c.trim(1)
				c.broadcaster.End()
			},
			want: EndLost, earliest: minWatchLife, latest: allWithin, maxPerSecond: mostPerSecond,
		},
		"the state is lost while clients read it": {
			cause: func(c *fakeCluster) { c.broadcaster.End() }, stateTime: maxEndSpread,
			want: EndLost, earliest: minWatchLife, latest: allWithin, maxPerSecond: watches,
		},
		"the state may be wrong": {
			cause: func(c *fakeCluster) { c.broadcaster.Abort() },
			want:  EndLost, earliest: minWatchLife, latest: allWithin, maxPerSecond: mostPerSecond,
		},
		"IsDefined is false for long": {
			cause: func(c *fakeCluster) {
				c.definition.doubtful.Store(true)
				c.add("n1")
			},
			want: EndLost, earliest: holdTimeout, latest: holdTimeout + holdPollInterval + allWithin,
			maxPerSecond: mostPerSecond, idleMustGoOn: true,
		},
		"the process ends": {
			cause: func(c *fakeCluster) { c.broadcaster.EndWithin(shutdown, EndShutdown) },
			want:  EndShutdown, earliest: minWatchLife, latest: allWithinShutdown, maxPerSecond: mostAtShutdown,
		},
		"the state is lost, and the process ends": {
			cause: func(c *fakeCluster) {
				c.broadcaster.End()
				c.broadcaster.EndWithin(shutdown, EndShutdown)
			},
			earliest: minWatchLife, latest: allWithinShutdown, maxPerSecond: mostAtShutdown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var pacer Pacer
				var all, idle []*watchClient
				for range broadcasters {
					c := newCluster(t, 1)
					c.broadcaster = NewBroadcaster(testForm(t), c.span, &Counts{}, &pacer)
					for range watchesEach {
						all = append(all, c.watchNamespace("n1", Options{}))
					}
					hasAll := c.watchNamespace("n3", Options{}) // no change concerns it
					hasAll.receive(t.Context())
					idle = append(idle, hasAll)
					c.add("n1")
					c.add("n1")
					synctest.Wait()
					tt.cause(c)
				}
				time.Sleep(tt.stateTime)
				synctest.Wait()
				perSecond := map[time.Duration]int{}
				for _, e := range endAll(t, all) {
					perSecond[e.after.Truncate(time.Second)]++
					if tt.want != "" && e.ending != tt.want {
						t.Errorf("a watch: got the ending %q, want %q", e.ending, tt.want)
					}
					if e.after < tt.earliest || e.after > tt.latest {
						t.Errorf("a watch ends after %v, want %v to %v", e.after, tt.earliest, tt.latest)
					}
				}
				for second, n := range perSecond {
					if n > tt.maxPerSecond {
						t.Errorf("%d watches end in the second after %v, want at most %d", n, second, tt.maxPerSecond)
					}
				}
				for _, w := range idle {
					if tt.idleMustGoOn && w.phase.Load() != phaseOpen {
						t.Error("a watch that has all changes ends, want it to go on")
					}
				}
			})
		})
	}
}

// watchEnd is how a watch ended, and how long after its client got the state.
type watchEnd struct {
	ending Ending
	after  time.Duration
}

// endAll lets clients read until their watches end, and returns the ends. The clients have just got their states.
func endAll(t *testing.T, all []*watchClient) []watchEnd {
	t.Helper()
	begunAt := time.Now()
	ends := make([]watchEnd, len(all))
	var reading sync.WaitGroup
	for i, w := range all {
		reading.Go(func() {
			w.InitialSent()
			w.receiveAll(t.Context())
			ending := w.AwaitEnd(t.Context(), w.end)
			w.Close(ending)
			ends[i] = watchEnd{ending: ending, after: time.Since(begunAt)}
		})
	}
	reading.Wait()
	return ends
}

// TestSlowState: a client that still reads its state when the history forgets later changes may read on for
// initialStateTimeout. If the state may be wrong, the client must stop at once.
func TestSlowState(t *testing.T) {
	for name, tt := range map[string]struct {
		cause            func(*fakeCluster)
		wantEarly        Ending // before initialStateTimeout is over; "": it reads on
		wantLate         Ending // after initialStateTimeout
		wantNewestReader Ending // after initialStateTimeout, of a client that reads the newest state
	}{
		"nothing is forgotten":          {cause: func(*fakeCluster) {}},
		"the next change is forgotten":  {cause: func(c *fakeCluster) { c.trim(2) }, wantLate: EndBehind},
		"another state has been loaded": {cause: (*fakeCluster).renew, wantLate: EndBehind, wantNewestReader: EndBehind},
		"the known states may be wrong": {
			cause:     func(c *fakeCluster) { c.broadcaster.Abort() },
			wantEarly: EndLost, wantLate: EndLost, wantNewestReader: EndLost,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *fakeCluster) {
				w := c.watchNamespace("n1", Options{})
				for range 3 {
					c.add("elsewhere")
				}
				newestReader := c.watch(index.Query{}, Options{After: c.span.To})
				tt.cause(c)
				expect.Same(t, tt.wantEarly, w.AwaitDefined(t.Context()))
				time.Sleep(initialStateTimeout - time.Second)
				expect.Same(t, tt.wantEarly, w.AwaitDefined(t.Context()))
				time.Sleep(time.Second)
				expect.Same(t, tt.wantLate, w.AwaitDefined(t.Context()))
				expect.Same(t, tt.wantNewestReader, newestReader.AwaitDefined(t.Context()))
			})
		})
	}
}

// TestDrain: a client that reads slowly gets events of a lost history for drainTimeout, and no longer.
func TestDrain(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster) {
		const changes, readEvery = 100, 2 * time.Second
		w := c.watch(index.Query{}, Options{After: c.span.To})
		for range changes {
			revision := c.span.To + 1
			name := strings.Repeat("x", batchSize) // so that each batch has one event
			c.change(revision, index.Change{After: c.object("n1", name, "1", "", revision)})
		}
		c.broadcaster.End()
		time.Sleep(minWatchLife + time.Second) // by now the broadcaster has ended this watch, which only drains
		begunAt := time.Now()
		for w.end == "" {
			w.receive(t.Context())
			time.Sleep(readEvery)
		}
		expect.Same(t, EndLost, w.end)
		if took := time.Since(begunAt); took > drainTimeout+2*readEvery {
			t.Errorf("the watch ends after %v, want at most about %v", took, drainTimeout)
		}
		if n := len(w.events); n == 0 || n == changes {
			t.Errorf("got %d of %d events, want some but not all", n, changes)
		}
	})
}

// TestNoBookmarkAtTheBeginning: a watch gets no bookmark at the revision after which it begins.
func TestNoBookmarkAtTheBeginning(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster) {
		w := c.watch(index.Query{}, Options{After: c.span.To, Bookmarks: true})
		time.Sleep(bookmarkInterval + bookmarkJitter)
		if w.receive(t.Context()) {
			t.Errorf("nothing has changed: got the bookmarks %v, want none", w.bookmarks)
		}
	})
}
