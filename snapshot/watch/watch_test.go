package watch

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// TestNewestIsEncodedOnce: all clients for which the newest change is the same event as for the first one share its
// bytes.
func TestNewestIsEncodedOnce(t *testing.T) {
	byApp := func(app string) index.Query {
		return index.Query{Labels: labels.SelectorFromSet(labels.Set{"app": app})}
	}
	byKind := map[string]index.Query{wire.Modified: {}, wire.Deleted: byApp("1"), wire.Added: byApp("2")}
	for shared := range byKind {
		c := newCluster(t, 1)
		old := c.object("n1", "p1", "1", "node0", 11)
		c.change(11, index.Change{After: old})
		c.change(12, index.Change{Before: old, After: c.object("n1", "p1", "2", "node0", 12)})
		take := func(kind string) (batch Batch) {
			c.watch(byKind[kind], Options{After: 11}).Take(t.Context(), &batch)
			if text := slices.Concat(slices.Collect(batch.Parts)...); !bytes.HasPrefix(text, []byte(`{"type":"`+kind)) {
				t.Fatalf("got %q, want an event of type %s", text, kind)
			}
			return batch
		}
		first := take(shared)
		for kind := range byKind {
			batch := take(kind)
			if isShared := len(batch.encoded) > 0 && &batch.encoded[0] == &first.encoded[0]; isShared != (kind == shared) {
				t.Errorf("after an event of type %s, that of type %s has the same bytes: %v", shared, kind, isShared)
			}
		}
	}
}

// TestEndsAreSpread: whatever ends many watches of several broadcasters, they end at different times, for the wanted reason
// and within a duration. No watch ends within a second after its client got the state, since client-go would list then.
func TestEndsAreSpread(t *testing.T) {
	const broadcasters, watchesEach = 20, 90
	const watches = broadcasters * watchesEach
	const shutdown = 3 * time.Second
	for name, tt := range map[string]struct {
		cause         func(*cluster)
		stateTime     time.Duration // for which each client reads its state
		want          Ending        // "": any
		wantLeast     time.Duration // minWatchLife if it is 0
		wantMost      time.Duration // maxEndSpread if it is 0; and minWatchLife more
		wantPerSecond int           // at most; 2*endsPerSecond if it is 0
		wantIdleGoOn  bool          // watches that have got everything go on
	}{
		"the history forgets the next change": {
			cause: func(c *cluster) { c.trim(1) }, want: EndBehind, wantIdleGoOn: true,
		},
		"the state is lost": {cause: func(c *cluster) { c.broadcaster.End() }, want: EndLost},
		"the history forgets the next change, and the state is lost": {
			cause: func(c *cluster) {
				c.trim(1)
				c.broadcaster.End()
			},
			want: EndLost,
		},
		"the state is lost while clients read it": {
			cause: func(c *cluster) { c.broadcaster.End() }, stateTime: maxEndSpread,
			want: EndLost, wantPerSecond: watches,
		},
		"the state may be wrong": {cause: func(c *cluster) { c.broadcaster.Abort() }, want: EndLost},
		"Defined is false for long": {
			cause: func(c *cluster) {
				c.definition.doubtful.Store(true)
				c.add("n1")
			},
			want: EndLost, wantLeast: definedTimeout, wantMost: definedTimeout + definedPollInterval + maxEndSpread,
			wantIdleGoOn: true,
		},
		"the process ends": {
			cause: func(c *cluster) { c.broadcaster.EndWithin(shutdown, EndShutdown) },
			want:  EndShutdown, wantMost: shutdown, wantPerSecond: watches * 3 / 4,
		},
		"the state is lost, and the process ends": {
			cause: func(c *cluster) {
				c.broadcaster.End()
				c.broadcaster.EndWithin(shutdown, EndShutdown)
			},
			wantMost: shutdown, wantPerSecond: watches * 3 / 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var pacer Pacer
				var all, idle []*client
				for range broadcasters {
					c := newCluster(t, 1)
					c.broadcaster = NewBroadcaster(testForm(t), c.span, &Counts{}, &pacer)
					all = append(all, c.watchNamespace(watchesEach, "n1", Options{})...)
					unconcerned := c.watchNamespace(1, "n3", Options{})[0]
					unconcerned.take(t.Context())
					idle = append(idle, unconcerned)
					c.add("n1")
					c.add("n1")
					synctest.Wait()
					tt.cause(c)
				}
				time.Sleep(tt.stateTime)
				synctest.Wait()
				wantLeast := cmp.Or(tt.wantLeast, minWatchLife)
				wantMost := minWatchLife + cmp.Or(tt.wantMost, maxEndSpread)
				perSecond := map[time.Duration]int{}
				for _, e := range endAll(t, all) {
					perSecond[e.after.Truncate(time.Second)]++
					if (tt.want != "" && e.why != tt.want) || e.after < wantLeast || e.after > wantMost {
						t.Errorf("a watch ends after %v as %s, want %q after %v to %v", e.after, e.why, tt.want, wantLeast, wantMost)
					}
				}
				for _, w := range idle {
					if tt.wantIdleGoOn && w.phase.Load() != phaseOpen {
						t.Error("a watch ends that has got everything")
					}
				}
				wantPerSecond := cmp.Or(tt.wantPerSecond, 2*endsPerSecond)
				for second, n := range perSecond {
					if n > wantPerSecond {
						t.Errorf("%d watches end in the second after %v, want at most %d", n, second, wantPerSecond)
					}
				}
			})
		})
	}
}

// watchEnd is the end of a watch.
type watchEnd struct {
	why   Ending
	after time.Duration
}

// endAll lets clients that have just got their state read until their watches have ended, and returns the ends.
func endAll(t *testing.T, all []*client) []watchEnd {
	t.Helper()
	begunAt := time.Now()
	ends := make(chan watchEnd, len(all))
	var reading sync.WaitGroup
	for _, w := range all {
		reading.Go(func() {
			w.InitialSent()
			w.takeAll(t.Context())
			why := w.AwaitEnd(t.Context(), w.end)
			w.Close(why)
			ends <- watchEnd{why: why, after: time.Since(begunAt)}
		})
	}
	reading.Wait()
	close(ends)
	var collected []watchEnd
	for e := range ends {
		collected = append(collected, e)
	}
	return collected
}

// TestSlowState: a client that still reads its state when the history forgets what followed gets all of the state within
// initialStateTimeout. If the state may be wrong, the client gets no more of it.
func TestSlowState(t *testing.T) {
	for name, tt := range map[string]struct {
		cause      func(*cluster)
		wantEarly  Ending // before initialStateTimeout is over
		wantLate   Ending // after that
		wantNewest Ending // of a client that reads the newest state, after that
	}{
		"nothing is forgotten":          {cause: func(*cluster) {}},
		"the next change is forgotten":  {cause: func(c *cluster) { c.trim(2) }, wantLate: EndBehind},
		"another state has been loaded": {cause: (*cluster).renew, wantLate: EndBehind, wantNewest: EndBehind},
		"the known states may be wrong": {
			cause:     func(c *cluster) { c.broadcaster.Abort() },
			wantEarly: EndLost, wantLate: EndLost, wantNewest: EndLost,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				w := c.watch(queries(t)["a namespace"], Options{After: c.span.To})
				for range 3 {
					c.add("elsewhere")
				}
				newest := c.watch(queries(t)["all"], Options{After: c.span.To})
				tt.cause(c)
				expect.Same(t, tt.wantEarly, w.InitialEnding(t.Context()))
				time.Sleep(initialStateTimeout - time.Second)
				expect.Same(t, tt.wantEarly, w.InitialEnding(t.Context()))
				time.Sleep(time.Second)
				expect.Same(t, tt.wantLate, w.InitialEnding(t.Context()))
				expect.Same(t, tt.wantNewest, newest.InitialEnding(t.Context()))
			})
		})
	}
}

// TestDrain: a client that reads slowly gets what is left of a lost history for drainTimeout, and no longer.
func TestDrain(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		const changes, pause = 100, 2 * time.Second
		w := c.watch(queries(t)["all"], Options{After: c.span.To})
		for range changes {
			revision := c.span.To + 1
			name := strings.Repeat("x", batchSize) // so that each batch has one event
			c.change(revision, index.Change{After: c.object("n1", name, "1", "", revision)})
		}
		c.broadcaster.End()
		time.Sleep(minWatchLife + time.Second) // the end of a single watch is planned within these
		begunAt := time.Now()
		for w.end == "" {
			w.take(t.Context())
			time.Sleep(pause)
		}
		if took := time.Since(begunAt); took > drainTimeout+2*pause || w.end != EndLost {
			t.Errorf("ended as %q after %v, want %q after about %v", w.end, took, EndLost, drainTimeout)
		}
		if n := len(w.events); n == 0 || n == changes {
			t.Errorf("got %d of %d events, want some", n, changes)
		}
	})
}

// TestNoBookmarkAtTheBeginning: no bookmark names the revision after which the watch begins.
func TestNoBookmarkAtTheBeginning(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		w := c.watch(index.Query{}, Options{After: c.span.To, Bookmarks: true})
		w.take(t.Context())
		time.Sleep(bookmarkInterval + bookmarkJitter)
		if w.take(t.Context()) {
			t.Errorf("got the bookmarks %v where nothing has changed, want none", w.bookmarks)
		}
	})
}
