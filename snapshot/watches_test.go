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

// follow begins to follow the newest state of a collection.
func follow(t *testing.T, c *Collection) *watch.Cursor {
	t.Helper()
	snap, why := c.Latest(t.Context(), 0)
	if why != reason.None {
		t.Fatal(why)
	}
	cursor := snap.Watch(index.Query{}, watch.Options{After: snap.Revision, Timeout: 24 * time.Hour, Defined: func() bool { return true }})
	if cursor == nil {
		t.Fatal("it cannot be followed")
	}
	return cursor
}

// take returns how many events a cursor tells, and how it has ended; "" if it has not.
func take(t *testing.T, cursor *watch.Cursor) (events int, end watch.Ending) {
	t.Helper()
	for b := (watch.Batch{}); ; {
		synctest.Wait()
		if end = cursor.Take(t.Context(), &b); end != "" || b.Events == 0 {
			return events, end
		}
		events += b.Events
	}
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
		drops  bool // all is in doubt
		frame  *wire.Frame
		loads  []*index.Object // at revision 50; nil: nothing
		told   int             // of the two changes before; 0: it has not looked yet
		after  int             // of the change after
		ending watch.Ending
	}{
		"nothing happens": {told: 2, after: 1},
		"the same state":  {told: 2, after: 1, frame: frame, loads: []*index.Object{object("a", 20), object("b", 30)}},
		"the same state, of which it has not been told all": {ending: watch.EndBehind, frame: frame, loads: []*index.Object{object("a", 20), object("b", 30)}},
		"another revision": {told: 2, ending: watch.EndLost, frame: frame, loads: []*index.Object{object("a", 20), object("b", 40)}},
		"one less":         {told: 2, ending: watch.EndLost, frame: frame, loads: []*index.Object{object("a", 20)}},
		"another one":      {told: 2, ending: watch.EndLost, frame: frame, loads: []*index.Object{object("a", 20), object("c", 30)}},
		"another frame":    {told: 2, ending: watch.EndLost, frame: other, loads: []*index.Object{object("a", 20), object("b", 30)}},
		"all is in doubt":  {told: 2, ending: watch.EndLost, drops: true, frame: frame, loads: []*index.Object{object("a", 20), object("b", 30)}},
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
			write := func(kind, key string, rev uint64) {
				expect.NoError(t, c.apply(change{kind: kind, key: key, revision: rev, object: object(key, rev)}))
			}
			load(frame, 10)
			cursor := follow(t, c)
			defer cursor.Close(watch.EndGone)
			write(wire.Added, "a", 20)
			write(wire.Added, "b", 30)
			if tt.told > 0 {
				if told, end := take(t, cursor); told != tt.told || end != "" {
					t.Errorf("told of %d changes: %q", told, end)
				}
			}
			if tt.drops {
				c.drop(reason.Warming)
			}
			if tt.loads != nil {
				load(tt.frame, 50, tt.loads...)
				if from, at := c.NoFollow(30, true), c.NoFollow(50, true); from != reason.History || at != reason.None {
					t.Errorf("from before the load: %q, from there: %q", from, at)
				}
			}
			write(wire.Modified, "a", 60)
			told, end := take(t, cursor)
			if told != tt.after || end != "" && tt.told > 0 {
				t.Errorf("told of %d changes after it: %q", told, end)
			}
			if time.Sleep(longestEndOfAll); end == "" {
				_, end = take(t, cursor)
			}
			if end != tt.ending {
				t.Errorf("ended as %q, want %q", end, tt.ending)
			}
		})
	}
}

// longestEndOfAll is more than those take to end whose state was lost, and who are told what is left.
const longestEndOfAll = 25 * time.Second

// TestFormsAreLearned: how bookmarks are written is known soon after the load, long before the stream has one, so
// that a watch that ends then is told a last one. It is not learned from one that says that initial events end.
// What the upstream writes in a way that listproxy does not know is in lists, but told to nobody.
func TestFormsAreLearned(t *testing.T) {
	const asEver = `{"type":"MODIFIED",`
	for name, tt := range map[string]struct {
		annotations, event string
		known              bool
	}{
		"as ever":                             {"", asEver, true},
		"a bookmark that ends initial events": {endsInitial, asEver, false},
		"an event with a space":               {"", `{"type": "MODIFIED",`, false},
	} {
		inBubble(t, name, func(t *testing.T) {
			told := strings.Replace(inEvent("MODIFIED", itemBAt(13)), asEver, tt.event, 1)
			c := watched(t, &upstream{revision: 12, beside: new(bookmark(12, tt.annotations)), tells: told, pauses: 2500 * time.Millisecond}, 3*time.Second)
			snap, why := c.Latest(t.Context(), 13)
			if why != reason.None {
				t.Fatal(why)
			}
			if form := snap.WatchForm(); (form != nil && form.Plain != nil) != tt.known {
				t.Errorf("it is followed in the form %+v", form)
			}
		})
	}
}

// TestWatchesOutliveProbes: while the feed's stream tells something, or a probe says that there
// is nothing to tell, watches go on. If neither is so for the staleness bound they end, whatever the
// reason.
func TestWatchesOutliveProbes(t *testing.T) {
	const bound = 90 * time.Second // of fed
	refused := func() meddling { return during(time.Second, time.Hour, "probe", 1, 0, http.StatusTooManyRequests) }
	unanswered := func() meddling { return during(time.Second, time.Hour, "probe", 1, time.Hour, 0) }
	for name, tt := range map[string]struct {
		probes meddling // nil: they are answered
		tells  string
		ends   bool
		stale  bool
	}{
		"all is well":                              {tells: bookmark(9, "")},
		"nothing is written anywhere":              {},
		"probes are refused, bookmarks come":       {probes: refused(), tells: bookmark(9, ""), stale: true},
		"probes are not answered, bookmarks come":  {probes: unanswered(), tells: bookmark(9, ""), stale: true},
		"probes are refused, the stream is silent": {probes: refused(), ends: true, stale: true},
		"the API server stands still":              {probes: unanswered(), ends: true, stale: true},
	} {
		inBubble(t, name, func(t *testing.T) {
			u := &upstream{revision: 9, tells: tt.tells, pauses: time.Minute, meddle: tt.probes}
			c := watched(t, u, 2*time.Second)
			cursor := follow(t, c)
			defer cursor.Close(watch.EndGone)
			time.Sleep(bound - 10*time.Second)
			if _, end := take(t, cursor); end != "" {
				t.Errorf("it ended after less than %v: %s", bound, end)
			}
			time.Sleep(20 * time.Second)
			if _, end := take(t, cursor); (end != "") != tt.ends || tt.ends && end != watch.EndLost {
				t.Errorf("it ended after about %v as %q", bound, end)
			}
			time.Sleep(3 * time.Minute) // before the stream's own timeout
			if _, end := take(t, cursor); end != "" && !tt.ends {
				t.Errorf("it ended: %s", end)
			}
			if why := c.NoFollow(9, true); (why == reason.Stale) != tt.stale {
				t.Errorf("another that begins: %q", why)
			}
			u.mu.Lock()
			defer u.mu.Unlock()
			if u.watches != 2 { // one to learn how bookmarks are written, one to follow
				t.Errorf("the feed has opened %d watches", u.watches)
			}
		})
	}
}
