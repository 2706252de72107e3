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
		After: snap.Revision, Timeout: 24 * time.Hour, IsDefined: func() bool { return true },
	})
	if watcher == nil {
		t.Fatal("the collection cannot be watched")
	}
	return watcher
}

// whyNotFollow returns the reason why no watch can begin after a revision; None if one can.
func whyNotFollow(c *Collection, after uint64) reason.Reason {
	const gapless = true
	_, why := c.view.Load().follow(c.now(), after, gapless)
	return why
}

// takeAll takes all events that a watcher has. It returns their number and the ending; "" if the watch goes on.
func takeAll(t *testing.T, watcher *watch.Watcher) (events int, end watch.Ending) {
	t.Helper()
	for b := (watch.Batch{}); ; {
		synctest.Wait()
		if end = watcher.Take(t.Context(), &b); end != "" || b.Events == 0 {
			return events, end
		}
		events += b.Events
	}
}

// TestLoadEndsWatchesThatAreBehind: when a state is loaded, a client's watch ends as EndBehind if it lacks earlier changes, and as EndLost,
// without another event, if the state before was dropped. Further watches begin with the loaded state.
func TestLoadEndsWatchesThatAreBehind(t *testing.T) {
	object := func(key string, revision uint64) *index.Object {
		return index.NewObject(0, key, revision, fmt.Appendf(nil, `{"metadata":{"resourceVersion":"%d"}}`, revision))
	}
	envelope := samples.Envelope("PodList", "v1")
	for name, tt := range map[string]struct {
		readsBefore bool // the client reads the changes before the load
		drops       bool // the state is dropped before the load
		wantEvents  int  // after the load
		wantEnd     watch.Ending
	}{
		"the watch has all changes":     {readsBefore: true, wantEvents: 1},
		"the watch lacks changes":       {wantEnd: watch.EndBehind},
		"the earlier state was dropped": {readsBefore: true, drops: true, wantEnd: watch.EndLost},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			limits := Limits{History: time.Minute, Staleness: time.Hour}
			s := shared{budget: &budget{}, outage: noOutage, pacer: &watch.Pacer{}, probes: &source.ProbeCounter{}}
			c := newCollection(CollectionKey{}, limits, s, &collectionCounts{})
			load := func(revision uint64, objects ...*index.Object) {
				state := index.NewTree(withoutIndex)
				for _, o := range objects {
					state.Set(o)
				}
				c.install(&stateLoad{
					state: state, revision: revision, envelope: envelope, watchForm: &watch.Form{Envelope: envelope},
					probe: c.shared.probes.Next(), watchesUpToDate: true,
				})
			}
			write := func(kind, key string, revision uint64) {
				expect.NoError(t, c.applyChange(stateChange{kind: kind, key: key, revision: revision, object: object(key, revision)}))
			}
			load(10)
			watcher := follow(t, c)
			defer watcher.Close(watch.EndGone)
			write(wire.Added, "a", 20)
			write(wire.Added, "b", 30)
			if tt.readsBefore {
				if events, end := takeAll(t, watcher); events != 2 || end != "" {
					t.Errorf("before the load: got %d events and the ending %q, want 2 and none", events, end)
				}
			}
			if tt.drops {
				c.drop(reason.Warming)
			}
			load(50, object("a", 20), object("b", 30))
			// The changes after 30 are forgotten, and those after 50, the load's revision, are known.
			for after, want := range map[uint64]reason.Reason{30: reason.History, 50: reason.None} {
				if why := whyNotFollow(c, after); why != want {
					t.Errorf("another watch after %d: got reason %q, want %q", after, why, want)
				}
			}
			write(wire.Modified, "a", 60)
			time.Sleep(longestEnding)
			events, end := takeAll(t, watcher)
			if events != tt.wantEvents {
				t.Errorf("after the load: got %d events, want %d", events, tt.wantEvents)
			}
			if end != tt.wantEnd {
				t.Errorf("got the ending %q, want %q", end, tt.wantEnd)
			}
		})
	}
}

// longestEnding is more time than watches take to get what is left and to end, after their state was lost.
const longestEnding = 25 * time.Second

// TestWatchesOutliveALoad: a feed that knows a state up to revision 9 loads another one at 12. If a short watch from 9 has all
// changes that led to the loaded state, clients' watches get these changes and go on. If not, they end. The objects are the same
// at 9 and 12: an object that was added after 9 is gone at 12.
func TestWatchesOutliveALoad(t *testing.T) {
	itemCAt := func(revision string) string { return strings.Replace(itemC, `"12"`, `"`+revision+`"`, 1) }
	added, deleted := itemEvent("ADDED", itemCAt("10")), itemEvent("DELETED", itemCAt("11"))
	addedWithSpace := strings.Replace(added, `"ADDED",`, `"ADDED", `, 1)
	for name, tt := range map[string]struct {
		shortWatch []string // the lines of the short watch
		wantEvents int      // that a client's watch gets
		wantEnd    watch.Ending
	}{
		"no change":                      {shortWatch: []string{bookmark(12, "")}},
		"an object is added and deleted": {shortWatch: []string{added, deleted, bookmark(12, "")}, wantEvents: 2},
		"another object changes after the load": {
			shortWatch: []string{added, deleted, itemEvent("MODIFIED", itemBAt(13))}, wantEvents: 2,
		},
		"an object is added, and not in the loaded state": {
			shortWatch: []string{added, bookmark(12, "")}, wantEnd: watch.EndLost,
		},
		"an object changes, and not in the loaded state": {
			shortWatch: []string{itemEvent("MODIFIED", itemBAt(10)), bookmark(12, "")}, wantEnd: watch.EndLost,
		},
		"a bookmark below the load's revision":   {shortWatch: []string{added, deleted, bookmark(11, "")}, wantEnd: watch.EndLost},
		"no bookmark":                            {shortWatch: []string{added, deleted, cut}, wantEnd: watch.EndLost},
		"the upstream has forgotten the changes": {shortWatch: []string{errorEvent(http.StatusGone)}, wantEnd: watch.EndLost},
		"an event that API servers write with other bytes": {
			shortWatch: []string{addedWithSpace, deleted, bookmark(12, "")}, wantEnd: watch.EndLost,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			u := &upstream{revision: 9, repeats: bookmark(9, ""), repeatEvery: time.Minute}
			u.intercept = func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
				if kind == kindShortWatch && u.revision == 12 && r.URL.Query().Get("resourceVersion") == "9" {
					u.watches-- // follow counts it once more
					return 0, u.follow(r, strings.Join(tt.shortWatch, ""), 0)
				}
				return 0, nil
			}
			c := runWatchedFeed(t, u, 10*time.Second)
			watcher := follow(t, c)
			events, end := 0, watch.Ending("")
			go func() {
				var b watch.Batch
				for end == "" {
					end = watcher.Take(t.Context(), &b)
					events += b.Events
					if end == "" && b.Events == 0 {
						watcher.Wait(t.Context())
					}
				}
				watcher.Close(end)
			}()
			u.mu.Lock()
			u.revision = 12
			u.repeats = bookmark(12, "")
			u.mu.Unlock()
			c.requestReload()
			time.Sleep(longestEnding)
			synctest.Wait()
			if v := c.view.Load(); v.From != 12 || u.loads != 2 {
				t.Errorf("got a state from revision %d after %d loads, want 12 after 2", v.From, u.loads)
			}
			if events != tt.wantEvents {
				t.Errorf("got %d events, want %d", events, tt.wantEvents)
			}
			if end != tt.wantEnd {
				t.Errorf("got the ending %q, want %q", end, tt.wantEnd)
			}
		})
	}
}

// TestFormsAreLearned: soon after the load, a feed learns the form of bookmarks from a short watch, so that even a watch that
// ends early gets a last bookmark. A bookmark that ends initial events has another form, and teaches nothing. After an event
// that API servers write with other bytes, no form is known, and watches are forwarded.
func TestFormsAreLearned(t *testing.T) {
	event := itemEvent("MODIFIED", itemBAt(13))
	for name, tt := range map[string]struct {
		bookmark, event string // what the short watch and the stream send
		wantKnown       bool
	}{
		"usual bookmarks and events":          {bookmark: bookmark(12, ""), event: event, wantKnown: true},
		"a bookmark that ends initial events": {bookmark: bookmark(12, endsInitial), event: event},
		"an event with a space": {
			bookmark: bookmark(12, ""), event: strings.Replace(event, `"MODIFIED",`, `"MODIFIED", `, 1),
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			u := &upstream{
				revision: 12, shortWatchRepeats: new(tt.bookmark),
				repeats: tt.event, repeatEvery: 2500 * time.Millisecond, // before the check
			}
			snap, unavailable := runWatchedFeed(t, u, 3*time.Second).NotOlderThan(t.Context(), 13)
			if unavailable != reason.None {
				t.Fatalf("the state with the event: got reason %q, want the state", unavailable)
			}
			form := snap.WatchForm()
			if isKnown := form != nil && form.PlainBookmark != nil; isKnown != tt.wantKnown {
				t.Errorf("got the form %+v, want one with a known bookmark: %t", form, tt.wantKnown)
			}
		})
	}
}

// TestSilentStreamEndsWatches: watches go on while the feed's stream sends something, or probes prove that there is nothing to
// send. They end when neither has happened for the staleness bound. No watch begins without a proof.
func TestSilentStreamEndsWatches(t *testing.T) {
	const bound = 90 * time.Second // Limits.Staleness of runWatchedFeed
	refused := fault{kind: kindProbe, begins: time.Second, answer: refuseFor(1, http.StatusTooManyRequests)}
	unanswered := fault{kind: kindProbe, begins: time.Second, delay: time.Hour}
	answered := fault{}
	for name, tt := range map[string]struct {
		probes    fault
		repeats   string        // the line that the stream sends every minute; "": none
		wantEnd   watch.Ending  // after the bound; "": the watch goes on
		wantBegin reason.Reason // why another watch cannot begin
	}{
		"probes are answered, bookmarks come":           {probes: answered, repeats: bookmark(9, "")},
		"probes are answered, the stream is silent":     {probes: answered},
		"probes are refused, bookmarks come":            {probes: refused, repeats: bookmark(9, ""), wantBegin: reason.Stale},
		"probes are not answered, bookmarks come":       {probes: unanswered, repeats: bookmark(9, ""), wantBegin: reason.Stale},
		"probes are refused, the stream is silent":      {probes: refused, wantEnd: watch.EndLost, wantBegin: reason.Stale},
		"probes are not answered, the stream is silent": {probes: unanswered, wantEnd: watch.EndLost, wantBegin: reason.Stale},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			u := &upstream{revision: 9, repeats: tt.repeats, repeatEvery: time.Minute, intercept: tt.probes.intercept()}
			c := runWatchedFeed(t, u, 2*time.Second)
			watcher := follow(t, c)
			defer watcher.Close(watch.EndGone)
			time.Sleep(bound - 10*time.Second)
			if _, end := takeAll(t, watcher); end != "" {
				t.Errorf("before the bound: got the ending %q, want none", end)
			}
			time.Sleep(20 * time.Second)
			if _, end := takeAll(t, watcher); end != tt.wantEnd {
				t.Errorf("after the bound: got the ending %q, want %q", end, tt.wantEnd)
			}
			time.Sleep(3 * time.Minute) // before the stream's own timeout
			if _, end := takeAll(t, watcher); tt.wantEnd == "" && end != "" {
				t.Errorf("long after the bound: got the ending %q, want none", end)
			}
			if why := whyNotFollow(c, 9); why != tt.wantBegin {
				t.Errorf("another watch: got reason %q, want %q", why, tt.wantBegin)
			}
			u.mu.Lock()
			defer u.mu.Unlock()
			const wantWatches = 2 // one to learn the form of bookmarks, one to follow
			if u.watches != wantWatches {
				t.Errorf("got %d watches of the feed, want %d", u.watches, wantWatches)
			}
		})
	}
}
