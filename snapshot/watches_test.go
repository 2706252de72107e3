package snapshot

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
	"github.com/listproxy/listproxy/test/samples"
)

// follow begins a watch of the newest state of a collection.
func follow(t *testing.T, c *Collection) *watch.Watcher {
	t.Helper()
	snap, why := c.NotOlderThan(t.Context(), 0)
	if why != reason.None {
		t.Fatal(why)
	}
	watcher := snap.Watch(index.Query{}, watch.Options{
		After: snap.Revision, Timeout: 24 * time.Hour, Defined: func() bool { return true },
	})
	if watcher == nil {
		t.Fatal("the collection cannot be watched")
	}
	return watcher
}

// take returns how many events a watcher tells, and how it has ended; "" if it has not.
func take(t *testing.T, watcher *watch.Watcher) (events int, end watch.Ending) {
	t.Helper()
	for b := (watch.Batch{}); ; {
		synctest.Wait()
		if end = watcher.Take(t.Context(), &b); end != "" || b.Events == 0 {
			return events, end
		}
		events += b.Events
	}
}

// TestWatchesOverALoad: where the clients' watches were told all that led to a state that is loaded, they go on,
// and are told what happens next, but nobody can follow from before it. Who has still to be told something of the
// state before ends: what it misses is not kept. Else they end, are told what is left, and hold no memory longer
// than that. Nothing more is told of what is in doubt.
func TestWatchesOverALoad(t *testing.T) {
	object := func(key string, rev uint64) *index.Object {
		return index.NewObject(0, key, rev, fmt.Appendf(nil, `{"metadata":{"resourceVersion":"%d"}}`, rev))
	}
	envelope := samples.Envelope("PodList", "v1")
	for name, tt := range map[string]struct {
		drops           bool // the state is dropped before it is loaded
		loads           bool // a state is loaded
		watchesUpToDate bool // the feed has shown what led to it
		wantBefore      int  // of the two changes before the load; 0: the watch has taken none yet
		wantAfter       int  // of the change after it
		wantEnd         watch.Ending
	}{
		"nothing happens":        {wantBefore: 2, wantAfter: 1},
		"told of all":            {loads: true, watchesUpToDate: true, wantBefore: 2, wantAfter: 1},
		"not told of all yet":    {loads: true, watchesUpToDate: true, wantEnd: watch.EndBehind},
		"more may have happened": {loads: true, wantBefore: 2, wantEnd: watch.EndLost},
		"all is in doubt":        {drops: true, loads: true, watchesUpToDate: true, wantBefore: 2, wantEnd: watch.EndLost},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			limits := Limits{History: time.Minute, Staleness: time.Hour}
			s := shared{budget: &budget{}, outage: noOutage, pacer: &watch.Pacer{}, probes: &source.ProbeNumbers{}}
			c := newCollection(CollectionKey{}, limits, s, &collectionCounts{})
			load := func(rev uint64, objects ...*index.Object) {
				state := index.NewTree(false)
				for _, o := range objects {
					state.Set(o)
				}
				c.install(&stateLoad{
					state: state, revision: rev, envelope: envelope, watchForm: &watch.Form{Envelope: envelope},
					askedBy: c.probes.Next(),
				}, tt.watchesUpToDate)
			}
			write := func(kind, key string, rev uint64) {
				expect.NoError(t, c.apply(stateChange{kind: kind, key: key, revision: rev, object: object(key, rev)}))
			}
			load(10)
			watcher := follow(t, c)
			defer watcher.Close(watch.EndGone)
			write(wire.Added, "a", 20)
			write(wire.Added, "b", 30)
			if tt.wantBefore > 0 {
				if told, end := take(t, watcher); told != tt.wantBefore || end != "" {
					t.Errorf("told of %d changes before, want %d; ended as %q", told, tt.wantBefore, end)
				}
			}
			if tt.drops {
				c.drop(reason.Warming)
			}
			if tt.loads {
				load(50, object("a", 20), object("b", 30))
				if from, at := c.WhyNotFollow(30, true), c.WhyNotFollow(50, true); from != reason.History || at != reason.None {
					t.Errorf("from before the load: %q, from there: %q", from, at)
				}
			}
			write(wire.Modified, "a", 60)
			told, end := take(t, watcher)
			if told != tt.wantAfter || end != "" && tt.wantBefore > 0 {
				t.Errorf("told of %d changes after, want %d; ended as %q", told, tt.wantAfter, end)
			}
			if time.Sleep(longestEndOfAll); end == "" {
				_, end = take(t, watcher)
			}
			if end != tt.wantEnd {
				t.Errorf("ended as %q, want %q", end, tt.wantEnd)
			}
		})
	}
}

// TestWatchesOutliveALoad: a state is known up to revision 9, and loaded anew at 12 with the same objects at the
// same revisions. Clients' watches go on only if a watch from 9 tells what led to that state. They are told of what
// lived in between only; else they end.
func TestWatchesOutliveALoad(t *testing.T) {
	itemCAt := func(revision string) string { return strings.Replace(itemC, `"12"`, `"`+revision+`"`, 1) }
	made, removed := itemEvent("ADDED", itemCAt("10")), itemEvent("DELETED", itemCAt("11"))
	for name, tt := range map[string]struct {
		watchFrom9 []string // what it tells the feed
		wantTold   int
		wantEnd    watch.Ending
	}{
		"nothing happened":           {watchFrom9: []string{bookmark(12, "")}},
		"an object lived in between": {watchFrom9: []string{made, removed, bookmark(12, "")}, wantTold: 2},
		"and another one changed later": {
			watchFrom9: []string{made, removed, itemEvent("MODIFIED", itemBAt(13))}, wantTold: 2,
		},
		"an object that is not in the state": {
			watchFrom9: []string{made, bookmark(12, "")}, wantEnd: watch.EndLost,
		},
		"a change that is not in the state": {
			watchFrom9: []string{itemEvent("MODIFIED", itemBAt(10)), bookmark(12, "")}, wantEnd: watch.EndLost,
		},
		"not all up to the load":       {watchFrom9: []string{made, removed, bookmark(11, "")}, wantEnd: watch.EndLost},
		"nothing up to a bookmark":     {watchFrom9: []string{made, removed, cut}, wantEnd: watch.EndLost},
		"what came since is forgotten": {watchFrom9: []string{errorEvent(http.StatusGone)}, wantEnd: watch.EndLost},
		"an event that is written differently": {
			watchFrom9: []string{strings.Replace(made, `"ADDED",`, `"ADDED", `, 1), removed, bookmark(12, "")},
			wantEnd:    watch.EndLost,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			u := &upstream{revision: 9, repeats: bookmark(9, ""), repeatEvery: time.Minute}
			u.intercept = func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
				if kind == kindShortWatch && u.revision == 12 && r.URL.Query().Get("resourceVersion") == "9" {
					u.watches--
					return 0, u.follow(r, strings.Join(tt.watchFrom9, ""), 0)
				}
				return 0, nil
			}
			c := runWatchedFeed(t, u, 10*time.Second)
			watcher := follow(t, c)
			told, end := 0, watch.Ending("")
			go func() {
				for b := (watch.Batch{}); end == ""; told += b.Events {
					if end = watcher.Take(t.Context(), &b); end == "" && b.Events == 0 {
						watcher.Wait(t.Context())
					}
				}
				watcher.Close(end)
			}()
			u.mu.Lock()
			u.revision, u.repeats = 12, bookmark(12, "")
			u.mu.Unlock()
			c.requestReload()
			time.Sleep(longestEndOfAll)
			synctest.Wait()
			if v := c.view.Load(); v.From != 12 || u.loads != 2 {
				t.Errorf("the state begins at %d after %d loads", v.From, u.loads)
			}
			if told != tt.wantTold || end != tt.wantEnd {
				t.Errorf("a watch was told of %d changes, and ended as %q; want %d, %q", told, end, tt.wantTold, tt.wantEnd)
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
		annotations string // of the short watch's bookmark
		eventBegins string
		wantKnown   bool
	}{
		"as ever":                             {eventBegins: asEver, wantKnown: true},
		"a bookmark that ends initial events": {annotations: endsInitial, eventBegins: asEver},
		"an event with a space":               {eventBegins: `{"type": "MODIFIED",`},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			told := strings.Replace(itemEvent("MODIFIED", itemBAt(13)), asEver, tt.eventBegins, 1)
			c := runWatchedFeed(t, &upstream{
				revision: 12, shortWatchRepeats: new(bookmark(12, tt.annotations)),
				repeats: told, repeatEvery: 2500 * time.Millisecond,
			}, 3*time.Second)
			snap, why := c.NotOlderThan(t.Context(), 13)
			if why != reason.None {
				t.Fatal(why)
			}
			if form := snap.WatchForm(); (form != nil && form.PlainBookmark != nil) != tt.wantKnown {
				t.Errorf("watches have the form %+v, want a known one: %t", form, tt.wantKnown)
			}
		})
	}
}

// TestWatchesOutliveProbes: watches go on while the feed's stream tells something, or a probe says that there is
// nothing to tell. They end when neither has been so for the staleness bound.
func TestWatchesOutliveProbes(t *testing.T) {
	const bound = 90 * time.Second // as runWatchedFeed has it
	refused := func() interceptor {
		return fault{kind: kindProbe, begins: time.Second, code: http.StatusTooManyRequests}.intercept()
	}
	unanswered := func() interceptor { return fault{kind: kindProbe, begins: time.Second, delay: time.Hour}.intercept() }
	for name, tt := range map[string]struct {
		probes    interceptor // nil: they are answered
		repeats   string      // by the stream, every minute
		wantEnd   bool
		wantStale bool // for watches that begin
	}{
		"all is well":                              {repeats: bookmark(9, "")},
		"nothing is written anywhere":              {},
		"probes are refused, bookmarks come":       {probes: refused(), repeats: bookmark(9, ""), wantStale: true},
		"probes are not answered, bookmarks come":  {probes: unanswered(), repeats: bookmark(9, ""), wantStale: true},
		"probes are refused, the stream is silent": {probes: refused(), wantEnd: true, wantStale: true},
		"the API server stands still":              {probes: unanswered(), wantEnd: true, wantStale: true},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			u := &upstream{revision: 9, repeats: tt.repeats, repeatEvery: time.Minute, intercept: tt.probes}
			c := runWatchedFeed(t, u, 2*time.Second)
			watcher := follow(t, c)
			defer watcher.Close(watch.EndGone)
			time.Sleep(bound - 10*time.Second)
			if _, end := take(t, watcher); end != "" {
				t.Errorf("it ended after less than %v: %s", bound, end)
			}
			time.Sleep(20 * time.Second)
			if _, end := take(t, watcher); (end != "") != tt.wantEnd || tt.wantEnd && end != watch.EndLost {
				t.Errorf("it ended after about %v as %q", bound, end)
			}
			time.Sleep(3 * time.Minute) // before the stream's own timeout
			if _, end := take(t, watcher); end != "" && !tt.wantEnd {
				t.Errorf("it ended: %s", end)
			}
			if why := c.WhyNotFollow(9, true); (why == reason.Stale) != tt.wantStale {
				t.Errorf("another watch that begins: %q, want stale: %t", why, tt.wantStale)
			}
			u.mu.Lock()
			defer u.mu.Unlock()
			if u.watches != 2 { // one to learn how bookmarks are written, one to follow
				t.Errorf("the feed has opened %d watches", u.watches)
			}
		})
	}
}
