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
	snap, why := c.NotOlderThan(t.Context(), anyRevision)
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

// takeAll takes all events that are due for a watcher. It returns their number, and the ending; "" if the watch goes on.
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

// TestLoadEndsWatchesThatAreBehind: when another state is loaded, a client's watch that has not delivered all earlier changes
// ends with EndBehind. If the known state was dropped before, all its watches end with EndLost, without another event. New
// watches begin with the loaded state.
func TestLoadEndsWatchesThatAreBehind(t *testing.T) {
	object := func(key string, revision uint64) *index.Object {
		return index.NewObject(noNumber, key, revision, fmt.Appendf(nil, `{"metadata":{"resourceVersion":"%d"}}`, revision))
	}
	envelope := samples.Envelope("PodList", "v1")
	for name, tt := range map[string]struct {
		readsBefore bool // the client reads the two changes before the load
		drops       bool // the known state is dropped before the load
		wantEvents  int  // the number of events that the client gets after the load; there is one more change then
		wantEnd     watch.Ending
	}{
		"the watch has all changes":   {readsBefore: true, wantEvents: 1},
		"the watch lacks changes":     {wantEnd: watch.EndBehind},
		"the known state was dropped": {readsBefore: true, drops: true, wantEnd: watch.EndLost},
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
			// A client watches from 10 on. There are changes at 20 and 30.
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

			// The same state is loaded at 50. It is not known whether anything changed between 30 and 50.
			load(50, object("a", 20), object("b", 30))
			for after, want := range map[uint64]reason.Reason{30: reason.History, 50: reason.None} {
				if why := whyNotWatch(c, after); why != want {
					t.Errorf("another watch after %d: got reason %q, want %q", after, why, want)
				}
			}

			// There is a change at 60.
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

// longestEnding is more time than watches need to deliver what is left and to end, after their state was lost.
const longestEnding = 25 * time.Second

// TestWatchesOutliveALoad: a feed loads its state anew, first at loadedAt and then at reloadedAt. In between, it asks for the
// changes with a short watch from loadedAt. If these changes lead from the first state to the second one, clients' watches
// deliver them and go on. If not, clients' watches end.
//
// In this test, both states have the same objects at the same revisions. So the changes lead from one to the other only if an
// object that is added is deleted again.
func TestWatchesOutliveALoad(t *testing.T) {
	const reloadedAt = loadedAt + 3
	added := event("ADDED", "c", loadedAt+1)
	deleted := event("DELETED", "c", loadedAt+2)
	addedWithSpace := strings.Replace(added, `"ADDED",`, `"ADDED", `, 1)
	for name, tt := range map[string]struct {
		shortWatch string       // the lines of the short watch; "": the API server answers
		wantEvents int          // the number of events that a client's watch delivers
		wantEnd    watch.Ending // of a client's watch; "": it goes on
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
			// A client watches the first state.
			p := newPlane(t, "a", "b")
			c := runWatchedFeed(t, p, 10*time.Second)
			watcher := beginWatch(t, c)
			var events int
			var end watch.Ending
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

			// The second state is loaded.
			for p.Revision() < reloadedAt {
				p.writeElsewhere()
			}
			if tt.shortWatch != "" {
				p.intercept(answerKind(kindShortWatch, func(r *http.Request) *http.Response {
					isFromFirstState := r.URL.Query().Get("resourceVersion") == strconv.Itoa(loadedAt)
					if !isFromFirstState {
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

// TestFormsAreLearned: soon after the load, a feed learns the form of bookmarks from a short watch, so that even a client's
// watch that ends early gets a last bookmark. The bookmark that ends initial events has another form, and teaches nothing. If
// the stream sends an event in another form than was learned, the feed forgets the form, and clients' watches are forwarded.
func TestFormsAreLearned(t *testing.T) {
	const changedAt = loadedAt + 1
	const endsInitial = true
	const learningTime = 2500 * time.Millisecond // in which a short watch of this test sends two lines
	withSpace := strings.Replace(event("MODIFIED", "b", changedAt), `"MODIFIED",`, `"MODIFIED", `, 1)
	for name, tt := range map[string]struct {
		shortWatches string // the line that short watches send every second; "": the API server answers
		event        string // what the stream sends; "": the API server sends a change
		wantKnown    bool
	}{
		"usual bookmarks and events":          {wantKnown: true},
		"a bookmark that ends initial events": {shortWatches: inmemory.Bookmark(inmemory.Widgets, loadedAt, endsInitial)},
		"an event with a space":               {event: withSpace},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			p := newPlane(t, "a", "b")
			if tt.shortWatches != "" {
				p.intercept(answerKind(kindShortWatch, sendEvery(time.Second, tt.shortWatches)))
			}
			c := runWatchedFeed(t, p, learningTime)
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

// TestSilentStreamEndsWatches: clients' watches go on while the feed's stream sends something, or probes prove that there is
// nothing to send. They end when neither has happened for the staleness bound. No watch begins if no probe has proven the state
// for that time.
func TestSilentStreamEndsWatches(t *testing.T) {
	const bound = 90 * time.Second // Limits.Staleness of runWatchedFeed
	refused := fault{kind: kindProbe, begins: time.Second, answer: refuseFor(http.StatusTooManyRequests, time.Second)}
	unanswered := fault{kind: kindProbe, begins: time.Second, delay: time.Hour}
	answered := fault{}
	for name, tt := range map[string]struct {
		probes   fault
		isSilent bool // the stream sends no bookmarks

		wantEnd         watch.Ending  // of a client's watch, after the bound; "": it goes on
		wantUnavailable reason.Reason // why no other watch can begin after the bound; None: one can
	}{
		"probes are answered, bookmarks come":       {probes: answered},
		"probes are answered, the stream is silent": {probes: answered, isSilent: true},
		"probes are refused, bookmarks come":        {probes: refused, wantUnavailable: reason.Stale},
		"probes are not answered, bookmarks come":   {probes: unanswered, wantUnavailable: reason.Stale},
		"probes are refused, the stream is silent": {
			probes: refused, isSilent: true, wantEnd: watch.EndLost, wantUnavailable: reason.Stale,
		},
		"probes are not answered, the stream is silent": {
			probes: unanswered, isSilent: true, wantEnd: watch.EndLost, wantUnavailable: reason.Stale,
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
			if why := whyNotWatch(c, loadedAt); why != tt.wantUnavailable {
				t.Errorf("another watch: got reason %q, want %q", why, tt.wantUnavailable)
			}
			const wantWatches = 2 // the short watch from which the form of bookmarks is learned, and the stream
			if n := p.count(kindStreamingList, kindWatch, kindShortWatch); n != wantWatches {
				t.Errorf("got %d watches of the feed, want %d", n, wantWatches)
			}
		})
	}
}
