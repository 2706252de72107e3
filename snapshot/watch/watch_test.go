package watch

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// TestNewestIsEncodedOnce: all clients for which the newest change is the same event as for the first one share its bytes.
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
			if isShared := len(batch.newest) > 0 && &batch.newest[0] == &first.newest[0]; isShared != (kind == shared) {
				t.Errorf("after an event of type %s, that of type %s has the same bytes: %v", shared, kind, isShared)
			}
		}
	}
}

// TestEndsAreSpread: whatever ends many watches of several broadcasters, they end apart, for that reason and within a
// time, and none within a second after it was told its state, for client-go would list then.
func TestEndsAreSpread(t *testing.T) {
	const broadcasters, each = 20, 90
	for name, tt := range map[string]struct {
		happens    func(*cluster)
		reads      time.Duration // for so long each is told its state
		want       Ending        // "": one reason or the other
		wantWithin time.Duration
		wantLeast  time.Duration
		wantMost   int // in any second
	}{
		"behind": {happens: func(c *cluster) { c.trim(1) }, want: EndBehind},
		"lost":   {happens: func(c *cluster) { c.broadcaster.End() }, want: EndLost},
		"behind, and lost": {
			happens: func(c *cluster) {
				c.trim(1)
				c.broadcaster.End()
			},
			want: EndLost,
		},
		"lost while they are told their state": {
			happens: func(c *cluster) { c.broadcaster.End() }, reads: maxEndSpread,
			want: EndLost, wantMost: broadcasters * each,
		},
		"may be wrong": {happens: func(c *cluster) { c.broadcaster.Abort() }, want: EndLost},
		"long in doubt": {
			happens: func(c *cluster) {
				c.definition.doubtful.Store(true)
				c.add("n1")
			},
			want: EndLost, wantLeast: definedTimeout, wantWithin: definedTimeout + definedPollInterval + maxEndSpread,
		},
		"shutdown": {
			happens: func(c *cluster) { c.broadcaster.EndWithin(3*time.Second, EndShutdown) },
			want:    EndShutdown, wantWithin: 3 * time.Second, wantMost: broadcasters * each * 3 / 4,
		},
		"lost, then shutdown": {
			happens: func(c *cluster) {
				c.broadcaster.End()
				c.broadcaster.EndWithin(3*time.Second, EndShutdown)
			},
			wantWithin: 3 * time.Second, wantMost: broadcasters * each * 3 / 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var pacer Pacer
				type end struct {
					why Ending
					at  time.Time
				}
				ends := make(chan end, broadcasters*each)
				var all, idle []*client
				for range broadcasters {
					c := newCluster(t, 1)
					c.broadcaster = NewBroadcaster(testForm(t), c.span, &Counts{}, &pacer)
					all = append(all, c.watchNamespace(each, "n1", Options{})...)
					idle = append(idle, c.watchNamespace(1, "n3", Options{})...)
					idle[len(idle)-1].take(t.Context())
					c.add("n1")
					c.add("n1")
					synctest.Wait()
					tt.happens(c)
				}
				time.Sleep(tt.reads)
				synctest.Wait()
				begun := time.Now()
				for _, w := range all {
					go func() {
						w.InitialSent()
						w.readOn(t.Context())
						why := w.AwaitEnd(t.Context(), w.end)
						w.Close(why)
						ends <- end{why, time.Now()}
					}()
				}
				in := map[time.Duration]int{}
				for range all {
					e := <-ends
					after := e.at.Sub(begun)
					in[after.Truncate(time.Second)]++
					least, most := max(minWatchLife, tt.wantLeast), minWatchLife+cmp.Or(tt.wantWithin, maxEndSpread)
					if e.why != cmp.Or(tt.want, e.why) || after < least || after > most {
						t.Errorf("a watch ends after %v as %s, want %q after %v to %v", after, e.why, tt.want, least, most)
					}
				}
				for _, w := range idle {
					if w.pastDeadline.Load() && (tt.want == EndBehind || tt.wantLeast > 0) {
						t.Error("a watch ends for which nothing is forgotten or in doubt")
					}
				}
				for second, n := range in {
					if most := cmp.Or(tt.wantMost, 2*endsPerSecond); n > most {
						t.Errorf("%d watches end in the second after %v, want at most %d", n, second, most)
					}
				}
			})
		})
	}
}

// TestBehindItsState: a client that still reads its state when what came after it is forgotten is told all of the state
// within initialStateTimeout. Where the state is in doubt, no more of it is told.
func TestBehindItsState(t *testing.T) {
	for name, tt := range map[string]struct {
		happens    func(*cluster)
		wantEarly  Ending // before initialStateTimeout is over
		wantLate   Ending
		wantNewest Ending // of a client that reads the newest state
	}{
		"nothing is forgotten":     {happens: func(*cluster) {}},
		"the next change is":       {happens: func(c *cluster) { c.trim(2) }, wantLate: EndBehind},
		"the state is loaded anew": {happens: (*cluster).renew, wantLate: EndBehind, wantNewest: EndBehind},
		"it is in doubt": {
			happens:   func(c *cluster) { c.broadcaster.Abort() },
			wantEarly: EndLost, wantLate: EndLost, wantNewest: EndLost,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				w := c.watch(queries(t)["a namespace"], Options{After: 10})
				for i := range uint64(3) {
					c.change(11+i, index.Change{After: c.object("elsewhere", fmt.Sprint(i), "1", "", 11+i)})
				}
				newest := c.watch(queries(t)["all"], Options{After: c.span.To})
				tt.happens(c)
				expect.Same(t, tt.wantEarly, w.Interrupted(t.Context()))
				time.Sleep(initialStateTimeout - time.Second)
				expect.Same(t, tt.wantEarly, w.Interrupted(t.Context()))
				time.Sleep(time.Second)
				expect.Same(t, tt.wantLate, w.Interrupted(t.Context()))
				expect.Same(t, tt.wantNewest, newest.Interrupted(t.Context()))
			})
		})
	}
}

// TestLastWords: a client that reads slowly is told what is left of a lost history for some seconds, and no longer.
func TestLastWords(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		w := c.watch(queries(t)["all"], Options{After: 10})
		for i := range uint64(100) {
			o := c.object("n1", strings.Repeat("x", 20_000), "1", "", 11+i)
			c.change(11+i, index.Change{After: o})
		}
		c.broadcaster.End()
		time.Sleep(minWatchLife + time.Second) // the end of one client comes within a second
		begun := time.Now()
		for w.end == "" {
			w.take(t.Context())
			time.Sleep(2 * time.Second)
		}
		if took := time.Since(begun); took > drainTimeout+4*time.Second || w.end != EndLost {
			t.Errorf("ended with %q after %v", w.end, took)
		}
		if n := len(w.events); n == 0 || n == 100 {
			t.Errorf("told %d of 100 events", n)
		}
	})
}

// TestNoBookmarkAtTheBeginning: no bookmark names the revision with which the client began.
func TestNoBookmarkAtTheBeginning(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		w := c.watch(index.Query{}, Options{After: 10, Bookmarks: true})
		w.take(t.Context())
		time.Sleep(bookmarkInterval + bookmarkJitter)
		if w.take(t.Context()) {
			t.Errorf("bookmarks %v where nothing has happened, want none", w.bookmarks)
		}
	})
}
