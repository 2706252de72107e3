package snapshot

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/budget"
	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// follower follows a collection, and says how that ended.
type follower struct {
	begun time.Time
	ended chan watch.Ending
	lived time.Duration
}

// follow begins to follow the newest state of a collection.
func follow(t *testing.T, c *Collection) *follower {
	t.Helper()
	snap, why := c.Latest(t.Context(), 0)
	if why != reason.None {
		t.Fatal(why)
	}
	cursor := snap.Watch(index.Query{}, watch.Options{After: snap.Revision, Timeout: 24 * time.Hour, Stands: func() bool { return true }})
	if cursor == nil {
		t.Fatal("it cannot be followed")
	}
	f := &follower{begun: time.Now(), ended: make(chan watch.Ending, 1)}
	go func() {
		for b := (watch.Batch{}); ; {
			switch end := cursor.Take(t.Context(), &b); {
			case end != "":
				cursor.Close(end)
				f.lived = time.Since(f.begun)
				f.ended <- end
				return
			case b.Events == 0:
				cursor.Wait(t.Context())
			}
		}
	}()
	return f
}

// TestFollowWhereNothingHappens: a history that was cut by time has all changes after the newest one
// that is older. One that was loaded anew, or that nobody knows for certain, has none from before.
func TestFollowWhereNothingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollection(Resource{}, Limits{History: time.Minute, Staleness: time.Hour}, &budget.Bound{}, &watch.Pacer{}, &freshness.Numbers{})
		load := func(rev uint64) {
			c.open(index.NewTree(false), 0, rev, wire.FixedFrame("PodList", "v1"), &watch.Form{}, c.probes.Next())
		}
		quiet := func(rev uint64) {
			time.Sleep(time.Second)
			expect.NoError(t, c.progress(rev))
			time.Sleep(2 * time.Minute)
			c.trim(time.Now())
		}
		write := func(kind string, rev uint64) {
			time.Sleep(time.Second)
			expect.NoError(t, c.apply(change{kind: kind, key: "a", revision: rev, object: index.NewObject(0, "a", rev, nil)}))
		}
		check := func(when string, first uint64) {
			t.Helper()
			got := map[uint64]reason.Reason{first - 1: c.NoFollow(first-1, true), first: c.NoFollow(first, true), c.view.Load().to(): c.NoFollow(c.view.Load().to(), true)}
			want := map[uint64]reason.Reason{first - 1: reason.History, first: reason.None, c.view.Load().to(): reason.None}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		load(10)
		quiet(20)
		check("nothing has changed since the load", 10)
		write(wire.Added, 30)
		write(wire.Modified, 40)
		quiet(50)
		check("nothing has changed since", 30) // the change at 40 is there
		c.forgetPast()
		check("the past is not certain", 50)
		write(wire.Modified, 60)
		quiet(70)
		check("and then nothing has changed", 50)
		c.close()
		load(80)
		quiet(90)
		check("loaded anew", 80)
	})
}

// TestLostSpanIsForgotten: those who are still told what is left of a lost span are told no more of
// it than is kept, and nothing if it is in doubt; and they hold none of its memory.
func TestLostSpanIsForgotten(t *testing.T) {
	for name, tt := range map[string]struct {
		then func(*Collection)
		end  watch.Ending
	}{
		"nothing happens":  {func(*Collection) {}, ""},
		"memory is needed": {func(c *Collection) { c.cutLocked(41) }, watch.EndBehind},
		"a part is cut":    {func(c *Collection) { c.cutLocked(40) }, watch.EndBehind},
		"all is in doubt":  {func(c *Collection) { c.dropLocked(reason.Warming) }, watch.EndLost},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollection(Resource{}, Limits{History: time.Minute, Staleness: time.Hour}, &budget.Bound{}, &watch.Pacer{}, &freshness.Numbers{})
			frame := wire.FixedFrame("PodList", "v1")
			form := &watch.Form{Frame: frame}
			c.open(index.NewTree(false), 0, 10, frame, form, c.probes.Next())
			snap, why := c.Latest(t.Context(), 0)
			if why != reason.None {
				t.Fatal(why)
			}
			cursor := snap.Watch(index.Query{}, watch.Options{After: 10, Timeout: time.Hour, Stands: func() bool { return true }})
			write := func(key string, rev uint64) weak.Pointer[index.Object] {
				o := index.NewObject(0, key, rev, fmt.Appendf(nil, `{"metadata":{"resourceVersion":"%d"}}`, rev))
				ch := change{kind: wire.Added, key: key, revision: rev, object: o}
				if _, found := c.view.Load().newest.Get(key); found {
					ch.kind = wire.Modified
				}
				expect.NoError(t, c.apply(ch))
				return weak.Make(o)
			}
			first := write("a", 20)
			write("a", 30)
			write("b", 40)
			c.close()
			c.open(index.NewTree(false), 0, 50, frame, form, c.probes.Next())
			c.mu.Lock()
			tt.then(c)
			c.mu.Unlock()
			runtime.GC()
			if kept := first.Value() != nil; kept != (tt.end == "") {
				t.Errorf("an object of the lost span is in memory: %t", kept)
			}
			var b watch.Batch
			end := cursor.Take(t.Context(), &b)
			if end == "" && b.Events == 0 {
				end = cursor.Interrupted(t.Context())
			}
			if end != tt.end || (b.Events == 3) != (end == "") {
				t.Errorf("told of %d changes, ended as %q", b.Events, end)
			}
			cursor.Close(watch.EndGone)
			c.tendWatches(time.Now())
			if n := len(c.leaving); n > 0 {
				t.Errorf("%d hubs that all have left are kept", n)
			}
		})
	}
}

// TestStatesOfADoubtfulPast: where only the newest state is certain any more, nobody is told more of an
// older one, be it of the live span or of one that is lost. The newest is told.
func TestStatesOfADoubtfulPast(t *testing.T) {
	c := newCollection(Resource{}, Limits{History: time.Minute, Staleness: time.Hour}, &budget.Bound{}, &watch.Pacer{}, &freshness.Numbers{})
	frame := wire.FixedFrame("PodList", "v1")
	load := func(rev uint64) {
		c.open(index.NewTree(false), 0, rev, frame, &watch.Form{Frame: frame}, c.probes.Next())
	}
	reads := func() *watch.Cursor {
		snap, why := c.Latest(t.Context(), 0)
		if why != reason.None {
			t.Fatal(why)
		}
		return snap.Watch(index.Query{}, watch.Options{After: snap.Revision, Timeout: time.Hour, Stands: func() bool { return true }})
	}
	load(10)
	lost := reads()
	c.close()
	load(20)
	older := reads()
	expect.NoError(t, c.apply(change{kind: wire.Added, key: "a", revision: 30, object: index.NewObject(0, "a", 30, nil)}))
	newest := reads()
	c.forgetPast()
	var ends []watch.Ending
	for _, cursor := range []*watch.Cursor{lost, older, newest} {
		ends = append(ends, cursor.Interrupted(t.Context()))
		cursor.Close(watch.EndGone)
	}
	if diff := cmp.Diff([]watch.Ending{watch.EndLost, watch.EndLost, ""}, ends); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestBookmarksAreLearnedAfterTheLoad: how bookmarks are written is known soon after the load, long
// before the stream has one, so that a watch that ends then is told a last one. It is not learned from
// one that says that initial events end.
func TestBookmarksAreLearnedAfterTheLoad(t *testing.T) {
	for annotations, known := range map[string]bool{
		"": true,
		`,"annotations":{"k8s.io/initial-events-end":"true"}`: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := fedWith(t, &quietResource{
				upstream: &upstream{revision: 9, watch: func(uint64) []string { return nil }},
				beside:   func(string) string { return bookmark(9, annotations) },
			}, 3*time.Second, nil, Settings{Watches: true}, 90*time.Second)
			if v := c.view.Load(); (v.watches != nil && v.watches.Form().Plain != nil) != known {
				t.Errorf("a bookmark with %q: it is known: %t", annotations, !known)
			}
		})
	}
}

// TestEventsOfAnotherForm: what the upstream writes in a way that listproxy does not know is in lists,
// but told to nobody.
func TestEventsOfAnotherForm(t *testing.T) {
	for form, known := range map[string]bool{`{"type":"MODIFIED",`: true, `{"type": "MODIFIED",`: false} {
		synctest.Test(t, func(t *testing.T) {
			u := &upstream{revision: 12, watch: func(uint64) []string {
				return []string{strings.Replace(inEvent("MODIFIED", itemBAt(13)), `{"type":"MODIFIED",`, form, 1)}
			}}
			c := fedWith(t, u, 3*time.Second, nil, Settings{Watches: true}, 90*time.Second)
			snap, why := c.Latest(t.Context(), 13)
			if why != reason.None {
				t.Fatalf("%s: %s", form, why)
			}
			if (snap.WatchForm() != nil) != known {
				t.Errorf("after %s it can be followed: %t", form, !known)
			}
		})
	}
}

// TestWatchesOutliveProbes: while the feed's stream tells something, or a probe says that there
// is nothing to tell, watches go on. If neither is so for the staleness bound they end, whatever the
// reason.
func TestWatchesOutliveProbes(t *testing.T) {
	const bound = 90 * time.Second // of fed
	refused := func(r *http.Request) (time.Duration, *http.Response) {
		return 0, tooBusy(r, http.StatusTooManyRequests)
	}
	unanswered := func(*http.Request) (time.Duration, *http.Response) { return time.Hour, nil }
	answered := func(*http.Request) (time.Duration, *http.Response) { return 0, nil }
	for name, tt := range map[string]struct {
		probes func(*http.Request) (time.Duration, *http.Response)
		tells  string
		ends   bool
		stale  bool
	}{
		"all is well":                              {probes: answered, tells: bookmark(9, "")},
		"nothing is written anywhere":              {probes: answered},
		"probes are refused, bookmarks come":       {probes: refused, tells: bookmark(9, ""), stale: true},
		"probes are not answered, bookmarks come":  {probes: unanswered, tells: bookmark(9, ""), stale: true},
		"probes are refused, the stream is silent": {probes: refused, ends: true, stale: true},
		"the API server stands still":              {probes: unanswered, ends: true, stale: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upstream{revision: 9, tells: tt.tells, pauses: time.Minute, watch: func(uint64) []string { return nil }}
				loaded := time.Now().Add(time.Second)
				c := fedWith(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
					if kindOf(r) == "probe" && time.Now().After(loaded) {
						return tt.probes(r)
					}
					return 0, nil
				}}, 2*time.Second, nil, Settings{Watches: true}, 90*time.Second)
				f := follow(t, c)
				time.Sleep(4*time.Minute + 30*time.Second) // before the stream's own timeout
				synctest.Wait()
				if why := c.NoFollow(9, true); (why == reason.Stale) != tt.stale {
					t.Errorf("another that begins: %q", why)
				}
				select {
				case end := <-f.ended:
					if !tt.ends || end != watch.EndLost || f.lived < bound-10*time.Second || f.lived > bound+10*time.Second {
						t.Errorf("it ended after %v: %s", f.lived, end)
					}
				default:
					if tt.ends {
						t.Error("it has not ended")
					}
				}
				u.mu.Lock()
				defer u.mu.Unlock()
				if u.watches != 3 { // two to learn how watches and bookmarks are written, one to follow
					t.Errorf("the feed has opened %d watches", u.watches)
				}
			})
		})
	}
}
