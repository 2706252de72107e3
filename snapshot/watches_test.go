package snapshot

import (
	"fmt"
	"net/http"
	"strconv"
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
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
	"github.com/listproxy/listproxy/test/samples"
)

// beginWatch begins a watch of the newest state of a collection.
func beginWatch(t *testing.T, c *Collection) *watch.Watcher {
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

// whyNotWatch returns the reason why no watch can begin after a revision; None if one can.
func whyNotWatch(c *Collection, after uint64) reason.Reason {
	const gapless = true
	_, why := c.view.Load().stateToWatch(c.now(), after, gapless)
	return why
}

// takeAll takes all events that a watcher has. It returns their number and the ending; "" if the watch goes on.
func takeAll(t *testing.T, watcher *watch.Watcher) (events int, end watch.Ending) {
	t.Helper()
	var b watch.Batch
	for {
		synctest.Wait()
		if end = watcher.Take(t.Context(), &b); end != "" || b.Events == 0 {
			return events, end
		}
		events += b.Events
	}
}

// TestLoadEndsWatchesThatAreBehind: when a state is loaded, a client's watch ends as EndBehind if it lacks earlier changes. It ends
// as EndLost, without another event, if the state before was dropped. Further watches begin with the loaded state.
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
			watcher := beginWatch(t, c)
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
				if why := whyNotWatch(c, after); why != want {
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

// TestWatchesOutliveALoad: after a load, other resources are written, and the feed loads another state at reloadedAt. If a short
// watch from the first load has all changes that led to the other state, clients' watches get these changes and go on. If not,
// they end. The objects are the same in both states: one that was added in between is gone.
func TestWatchesOutliveALoad(t *testing.T) {
	const reloadedAt = loadedAt + 3
	added, deleted := event("ADDED", "c", loadedAt+1), event("DELETED", "c", loadedAt+2)
	addedWithSpace := strings.Replace(added, `"ADDED",`, `"ADDED", `, 1)
	for name, tt := range map[string]struct {
		shortWatch string // the lines of the short watch; "": the API server answers
		wantEvents int    // that a client's watch gets
		wantEnd    watch.Ending
	}{
		"no change":                      {},
		"an object is added and deleted": {shortWatch: added + deleted + bookmark(reloadedAt), wantEvents: 2},
		"another object changes after the load": {
			shortWatch: added + deleted + event("MODIFIED", "b", reloadedAt+1), wantEvents: 2,
		},
		"an object is added, and not in the loaded state": {shortWatch: added + bookmark(reloadedAt), wantEnd: watch.EndLost},
		"an object changes, and not in the loaded state": {
			shortWatch: event("MODIFIED", "b", loadedAt+1) + bookmark(reloadedAt), wantEnd: watch.EndLost,
		},
		"a bookmark below the load's revision":   {shortWatch: added + deleted + bookmark(reloadedAt-1), wantEnd: watch.EndLost},
		"no bookmark":                            {shortWatch: added + deleted, wantEnd: watch.EndLost},
		"the upstream has forgotten the changes": {shortWatch: errorEvent(http.StatusGone), wantEnd: watch.EndLost},
		"an event that API servers write with other bytes": {
			shortWatch: addedWithSpace + deleted + bookmark(reloadedAt), wantEnd: watch.EndLost,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			p := newPlane(t, "a", "b")
			c := runWatchedFeed(t, p, 10*time.Second)
			watcher := beginWatch(t, c)
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
			for p.Revision() < reloadedAt {
				p.writeElsewhere()
			}
			if tt.shortWatch != "" {
				p.intercept(answerKind(kindShortWatch, func(r *http.Request) *http.Response {
					if r.URL.Query().Get("resourceVersion") != strconv.Itoa(loadedAt) {
						return nil
					}
					return respond(http.StatusOK, tt.shortWatch)(r)
				}))
			}
			c.requestReload()
			time.Sleep(longestEnding)
			synctest.Wait()
			if v, loads := c.view.Load(), p.count(kindStreamingList); v.From != reloadedAt || loads != 2 {
				t.Errorf("got a state from revision %d after %d loads, want %d after 2", v.From, loads, reloadedAt)
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
	const changedAt = loadedAt + 1
	withSpace := strings.Replace(event("MODIFIED", "b", changedAt), `"MODIFIED",`, `"MODIFIED", `, 1)
	for name, tt := range map[string]struct {
		shortWatches string // the line that short watches send every second; "": the API server answers
		event        string // what the stream sends; "": the API server sends a change
		wantKnown    bool
	}{
		"usual bookmarks and events":          {wantKnown: true},
		"a bookmark that ends initial events": {shortWatches: inmemory.Bookmark(inmemory.Widgets, loadedAt, true)},
		"an event with a space":               {event: withSpace},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			p := newPlane(t, "a", "b")
			if tt.shortWatches != "" {
				p.intercept(answerKind(kindShortWatch, sendEvery(time.Second, tt.shortWatches)))
			}
			c := runWatchedFeed(t, p, 2500*time.Millisecond)
			if tt.event == "" {
				p.write("b")
			} else {
				p.Send(inmemory.Widgets.Path, tt.event)
			}
			snap, unavailable := c.NotOlderThan(t.Context(), changedAt)
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
	refused := fault{kind: kindProbe, begins: time.Second, answer: refuseFor(http.StatusTooManyRequests, time.Second)}
	unanswered := fault{kind: kindProbe, begins: time.Second, delay: time.Hour}
	answered := fault{}
	for name, tt := range map[string]struct {
		probes    fault
		isSilent  bool          // the stream sends no bookmarks
		wantEnd   watch.Ending  // after the bound; "": the watch goes on
		wantBegin reason.Reason // why another watch cannot begin
	}{
		"probes are answered, bookmarks come":       {probes: answered},
		"probes are answered, the stream is silent": {probes: answered, isSilent: true},
		"probes are refused, bookmarks come":        {probes: refused, wantBegin: reason.Stale},
		"probes are not answered, bookmarks come":   {probes: unanswered, wantBegin: reason.Stale},
		"probes are refused, the stream is silent": {
			probes: refused, isSilent: true, wantEnd: watch.EndLost, wantBegin: reason.Stale,
		},
		"probes are not answered, the stream is silent": {
			probes: unanswered, isSilent: true, wantEnd: watch.EndLost, wantBegin: reason.Stale,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			p := newPlane(t, "a", "b")
			p.intercept(tt.probes.intercept())
			c := runWatchedFeed(t, p, 2*time.Second)
			if tt.isSilent {
				p.Silence(inmemory.Widgets.Path)
			}
			watcher := beginWatch(t, c)
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
			if why := whyNotWatch(c, loadedAt); why != tt.wantBegin {
				t.Errorf("another watch: got reason %q, want %q", why, tt.wantBegin)
			}
			const wantWatches = 2 // one to learn the form of bookmarks, one to follow
			if n := p.count(kindStreamingList, kindWatch, kindShortWatch); n != wantWatches {
				t.Errorf("got %d watches of the feed, want %d", n, wantWatches)
			}
		})
	}
}
