package snapshot

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
	cursor := snap.Watch(index.Query{}, watch.Options{After: snap.Revision, Timeout: 24 * time.Hour, Defined: func() bool { return true }})
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

// TestWatchesOverALoad: where a state is loaded that is the one from before, those who follow it go on,
// and are told what happens next, but nobody can follow from before it. Who has still to be told something
// of the state before ends: what it misses is not kept. Else they end, are told what is left, and hold no
// memory longer than that. Nothing more is told of what is in doubt.
func TestWatchesOverALoad(t *testing.T) {
	object := func(key string, rev uint64) *index.Object {
		return index.NewObject(0, key, rev, fmt.Appendf(nil, `{"metadata":{"resourceVersion":"%d"}}`, rev))
	}
	frame, other := wire.FixedFrame("PodList", "v1"), wire.FixedFrame("PodList", "v2")
	for name, tt := range map[string]struct {
		then   func(c *Collection, load func(frame *wire.Frame, rev uint64, objects ...*index.Object))
		told   int // of the two changes before; 0: it has not looked yet
		after  int // of the change after
		ending watch.Ending
	}{
		"nothing happens": {told: 2, after: 1, then: func(*Collection, func(*wire.Frame, uint64, ...*index.Object)) {}},
		"the same state": {told: 2, after: 1, then: func(_ *Collection, load func(*wire.Frame, uint64, ...*index.Object)) {
			load(frame, 50, object("a", 20), object("b", 30))
		}},
		"the same state, of which it has not been told all": {ending: watch.EndBehind, then: func(_ *Collection, load func(*wire.Frame, uint64, ...*index.Object)) {
			load(frame, 50, object("a", 20), object("b", 30))
		}},
		"another revision": {told: 2, ending: watch.EndLost, then: func(_ *Collection, load func(*wire.Frame, uint64, ...*index.Object)) {
			load(frame, 50, object("a", 20), object("b", 40))
		}},
		"one less": {told: 2, ending: watch.EndLost, then: func(_ *Collection, load func(*wire.Frame, uint64, ...*index.Object)) {
			load(frame, 50, object("a", 20))
		}},
		"another one": {told: 2, ending: watch.EndLost, then: func(_ *Collection, load func(*wire.Frame, uint64, ...*index.Object)) {
			load(frame, 50, object("a", 20), object("c", 30))
		}},
		"another frame": {told: 2, ending: watch.EndLost, then: func(_ *Collection, load func(*wire.Frame, uint64, ...*index.Object)) {
			load(other, 50, object("a", 20), object("b", 30))
		}},
		"all is in doubt": {told: 2, ending: watch.EndLost, then: func(c *Collection, load func(*wire.Frame, uint64, ...*index.Object)) {
			c.drop(reason.Warming)
			load(frame, 50, object("a", 20), object("b", 30))
		}},
	} {
		inBubble(t, name, func(t *testing.T) {
			c := newCollection(Resource{}, Limits{History: time.Minute, Staleness: time.Hour}, &budget.Bound{}, &watch.Pacer{}, &freshness.Numbers{})
			load := func(frame *wire.Frame, rev uint64, objects ...*index.Object) {
				state := index.NewTree(false)
				for _, o := range objects {
					state.Set(o)
				}
				c.open(complete{state: state, revision: rev, frame: frame, form: &watch.Form{Frame: frame}, Probe: c.probes.Next()})
			}
			load(frame, 10)
			snap, why := c.Latest(t.Context(), 0)
			if why != reason.None {
				t.Fatal(why)
			}
			cursor := snap.Watch(index.Query{}, watch.Options{After: 10, Timeout: time.Hour, Defined: func() bool { return true }})
			take := func() (events int, end watch.Ending) {
				for b := (watch.Batch{}); ; {
					synctest.Wait()
					if end = cursor.Take(t.Context(), &b); end != "" || b.Events == 0 {
						return events, end
					}
					events += b.Events
				}
			}
			write := func(kind, key string, rev uint64) {
				expect.NoError(t, c.apply(change{kind: kind, key: key, revision: rev, object: object(key, rev)}))
			}
			write(wire.Added, "a", 20)
			write(wire.Added, "b", 30)
			if tt.told > 0 {
				if told, end := take(); told != tt.told || end != "" {
					t.Errorf("told of %d changes: %q", told, end)
				}
			}
			tt.then(c, load)
			if at := c.view.Load().To; at == 50 && (c.NoFollow(30, true) != reason.History || c.NoFollow(50, true) != reason.None) {
				t.Errorf("from before the load: %q, from there: %q", c.NoFollow(30, true), c.NoFollow(50, true))
			}
			write(wire.Modified, "a", 60)
			told, end := take()
			if told != tt.after || end != "" && tt.told > 0 {
				t.Errorf("told of %d changes after it: %q", told, end)
			}
			if time.Sleep(longestEndOfAll); end == "" {
				_, end = take()
			}
			if end != tt.ending {
				t.Errorf("ended as %q, want %q", end, tt.ending)
			}
			cursor.Close(watch.EndGone)
		})
	}
}

// longestEndOfAll is more than those take to end whose state was lost, and who are told what is left.
const longestEndOfAll = 25 * time.Second

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
			}, 3*time.Second, Settings{Watches: true}, 90*time.Second)
			if v := c.view.Load(); (v.hub != nil && v.hub.Form().Plain != nil) != known {
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
			u := &upstream{
				revision: 12, watch: func(uint64) []string { return nil },
				tells: strings.Replace(inEvent("MODIFIED", itemBAt(13)), `{"type":"MODIFIED",`, form, 1), // after a second
			}
			c := fedWith(t, u, 1500*time.Millisecond, Settings{Watches: true}, 90*time.Second)
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
		inBubble(t, name, func(t *testing.T) {
			u := &upstream{revision: 9, tells: tt.tells, pauses: time.Minute, watch: func(uint64) []string { return nil }}
			loaded := time.Now().Add(time.Second)
			c := fedWith(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
				if kindOf(r) == "probe" && time.Now().After(loaded) {
					return tt.probes(r)
				}
				return 0, nil
			}}, 2*time.Second, Settings{Watches: true}, 90*time.Second)
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
	}
}
