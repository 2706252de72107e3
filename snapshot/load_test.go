package snapshot

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// A feed loads its state from a streaming list (a watch that begins with the whole state), or in pages if that fails. Before,
// it asks for the streaming list of a name that cannot exist. This empty list shows how streaming lists end. If the feed does
// not learn that, clients' streaming lists are forwarded.

// TestStreamingListsThatFail: if streaming lists fail, a feed loads the state in pages. If even the streaming list of a name
// that cannot exist fails, clients' streaming lists are forwarded.
func TestStreamingListsThatFail(t *testing.T) {
	for name, tt := range map[string]struct {
		intercept     interceptor
		wantForwarded bool
	}{
		"all are refused with 422": {
			intercept: refuseStreamingLists(refuse(http.StatusUnprocessableEntity)), wantForwarded: true,
		},
		"an error in the stream": {
			intercept: answerKind(kindStreamingList, respond(http.StatusOK, errorEvent(http.StatusInternalServerError))),
		},
		"the stream ends at once": {intercept: answerKind(kindStreamingList, respond(http.StatusOK, ""))},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			p := newPlane(t, "a", "b")
			p.intercept(tt.intercept)
			c := runWatchedFeed(t, p, time.Minute)
			expectForwardedStreamingLists(t, c, tt.wantForwarded)
		})
	}
}

// expectForwardedStreamingLists checks that a collection has a newest state, and whether clients' streaming lists are
// forwarded. (They are if the feed has not learned the bookmark that ends their initial events.)
func expectForwardedStreamingLists(t *testing.T, c *Collection, want bool) {
	t.Helper()
	snap, unavailable := c.NotOlderThan(t.Context(), anyRevision)
	form := snap.WatchForm()
	if unavailable != reason.None || form == nil {
		t.Fatalf("the newest state: got reason %q and watches of the form %+v, want a state and a form", unavailable, form)
	}
	if got := form.InitialEndBookmark == nil; got != want {
		t.Errorf("streaming lists are forwarded: got %t, want %t", got, want)
	}
}

// TestForbiddenStreamingLists: if streaming lists are answered 403, a feed does not load the state in pages, since lists would
// be answered 403, too.
func TestForbiddenStreamingLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, "a", "b")
		p.intercept(refuseStreamingLists(refuse(http.StatusForbidden)))
		expectUnavailable(t, runFeed(t, p, time.Minute), reason.NotPermitted)
	})
}

// TestStreamingListsWithoutEnd: after a streaming list of the whole state that did not end with its bookmark, a feed loads
// states in pages for pagesOnlyDuration, since each attempt costs the upstream a whole list. If even the streaming list of a
// name that cannot exist does not end, the feed does not ask for the whole state by a streaming list.
func TestStreamingListsWithoutEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		emptyEnds bool   // the streaming list of a name that cannot exist ends
		repeated  string // the line that a streaming list without an end sends every second; "": none

		wantForwarded  bool // clients' streaming lists are forwarded
		wantWhole      int  // the number of streaming lists of the whole state after three reloads, within pagesOnlyDuration
		wantWholeLater int  // their number after a fourth reload, when pagesOnlyDuration is over; checked if emptyEnds
	}{
		"no streaming list ends":                          {wantForwarded: true},
		"streaming lists send ordinary bookmarks instead": {repeated: bookmark(loadedAt), wantForwarded: true},
		"only the empty streaming list ends":              {emptyEnds: true, wantWhole: 1, wantWholeLater: 2},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			p := newPlane(t, "a", "b")
			p.intercept(func(_ *plane, r *http.Request) (time.Duration, *http.Response) {
				kind := kindOf(r)
				isEmptyWithoutEnd := kind == kindEmptyStreamingList && !tt.emptyEnds
				if kind == kindStreamingList || isEmptyWithoutEnd {
					return 0, sendEvery(time.Second, tt.repeated)(r)
				}
				return 0, nil
			})
			c := runWatchedFeed(t, p, time.Minute)
			reload := func() {
				c.requestReload()
				time.Sleep(time.Minute)
				synctest.Wait()
			}
			for range 3 {
				expectForwardedStreamingLists(t, c, tt.wantForwarded)
				reload()
			}
			if whole := p.count(kindStreamingList); whole != tt.wantWhole {
				t.Errorf("within pagesOnlyDuration: got %d streaming lists of the whole state, want %d", whole, tt.wantWhole)
			}

			time.Sleep(pagesOnlyDuration)
			reload()
			if whole := p.count(kindStreamingList); tt.emptyEnds && whole != tt.wantWholeLater {
				t.Errorf("after pagesOnlyDuration: got %d streaming lists of the whole state, want %d", whole, tt.wantWholeLater)
			}
		})
	}
}

// TestALongLoadIsNotNew: a state that took long to load is only as new as the request for it, until the feed's stream has
// reached the upstream's revision.
func TestALongLoadIsNotNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The second page takes 20 seconds. Meanwhile, another resource is written. The feed's stream does not send that.
		const loadTime = 20 * time.Second
		p := newPlane(t, "a", "b")
		pages := loadInPages(pagesAt(loadedAt, loadedAt))
		p.intercept(func(p *plane, r *http.Request) (time.Duration, *http.Response) {
			hold, page := pages(p, r)
			if isSecondPage := r.URL.Query().Has("continue"); isSecondPage {
				hold = loadTime
				p.writeElsewhere()
			}
			return hold, page
		})
		v := runFeed(t, p, loadTime+time.Second).view.Load()
		if v.To != loadedAt {
			t.Fatalf("the state is at revision %d, want %d: it is not up to date yet", v.To, loadedAt)
		}
		if age := time.Since(v.provenBy.Sent); age < loadTime {
			t.Errorf("the state counts as %v old, want at least %v", age, loadTime)
		}
	})
}

// TestLoadsThatTrickle: a load that trickles (the upstream sends a little now and then, and never all) holds up other loads for
// at most loadSlotTimeout. It ends within loadTimeout, and is not repeated within lastingPause.
func TestLoadsThatTrickle(t *testing.T) {
	const pageWithNext = `{"apiVersion":"v1","items":[],"kind":"List","metadata":{"continue":"x","resourceVersion":"9"}}`
	for name, trickle := range map[string]interceptor{
		"streaming lists": answerKind(kindStreamingList, sendEvery(loadSilence/2, bookmark(loadedAt))),
		"pages": func(p *plane, r *http.Request) (time.Duration, *http.Response) {
			hold, answer := loadInPages(func(*plane, string) string { return pageWithNext })(p, r)
			if isPage := answer != nil && answer.StatusCode == http.StatusOK; isPage {
				hold = 20 * time.Second
			}
			return hold, answer
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			// All resources but the widgets trickle.
			slowLoads := 0
			p := newPlane(t, "a", "b")
			p.intercept(func(p *plane, r *http.Request) (time.Duration, *http.Response) {
				if r.URL.Path == inmemory.Widgets.Path {
					return 0, nil
				}
				if kindOf(r) == kindStreamingList {
					slowLoads++
				}
				return trickle(p, r)
			})

			// As many resources trickle as may load at the same time. The widgets must wait until loadSlotTimeout.
			all := newCollections(t, p)
			var slow []*Collection
			for i := range maxLoads {
				key := resourceNamed(fmt.Sprint("slow", i))
				p.Put(p.serve(key), widget("a"))
				collection, _ := all.Use(key)
				slow = append(slow, collection)
			}
			synctest.Wait()
			quick, _ := all.Keep(widgets)
			const noWait = 0
			time.Sleep(loadSlotTimeout - time.Second)
			if why := quick.AwaitLoad(t.Context(), noWait, FirstLoad); why != reason.Warming {
				t.Errorf("before loadSlotTimeout, the widgets: got reason %q, want %q", why, reason.Warming)
			}
			time.Sleep(2 * time.Second)
			if why := quick.AwaitLoad(t.Context(), noWait, FirstLoad); why != reason.None {
				t.Errorf("after loadSlotTimeout, the widgets: got reason %q, want a state", why)
			}

			// The slow loads end at loadTimeout.
			time.Sleep(loadTimeout)
			for _, collection := range slow {
				if err := collection.LoadError(); !errors.Is(err, errSlow) {
					t.Errorf("after loadTimeout, a slow resource: got error %v, want %v", err, errSlow)
				}
			}

			// The slow loads are not repeated before lastingPause is over. This pause began when they ended, about
			// loadSlotTimeout ago. The last look is about loadSlotTimeout before its end.
			time.Sleep(lastingPause - 2*loadSlotTimeout)
			synctest.Wait()
			if slowLoads != maxLoads {
				t.Errorf("before lastingPause is over: got %d slow loads, want %d, one of each slow resource", slowLoads, maxLoads)
			}
		})
	}
}

// TestALoadIsCounted: the bytes of a load count in the budget. A load does not fit if more than nine tenths of the limit are
// used. A load that is discarded no longer counts.
func TestALoadIsCounted(t *testing.T) {
	b := &budget{limit: 1000}
	l := &stateLoad{budget: b}
	expect.NoError(t, l.addBytes(400))
	expect.NoError(t, l.addBytes(500))
	expect.Same(t, int64(900), b.used.Load())
	if err := l.addBytes(1); !errors.Is(err, errFull) {
		t.Errorf("one byte more than nine tenths: got error %v, want %v", err, errFull)
	}
	l.discard()
	expect.Same(t, int64(0), b.used.Load())
}

// TestShardsAreCounted: if the API server does not count the objects after a page of a shard (a part of a list, which a
// shardSelector selects), the feed learns their number from one list without a shard.
func TestShardsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, "a", "b")
		p.intercept(answerAsBuiltIn(knowsShards))
		c := runFeed(t, p, time.Minute)
		countingLists := p.requests(func(r *http.Request) bool {
			q := r.URL.Query()
			return kindOf(r) == kindList && q.Get("limit") == sampleLimit && !q.Has("shardSelector")
		})
		expectUnavailable(t, c, reason.None)
		if n := len(countingLists); n != 1 {
			t.Errorf("got %d lists without a shard, want 1", n)
		}
	})
}

// TestItemWithoutRevision: a load refuses an item without a resourceVersion, since watches could not send it at another
// revision.
func TestItemWithoutRevision(t *testing.T) {
	f := &feed{}
	l := &stateLoad{envelope: &wire.Envelope{ItemForm: wire.ItemForm{Known: true}}}
	if err := f.addItem(l, []byte(`{"metadata":{"name":"a"}}`)); !errors.Is(err, wire.ErrForm) {
		t.Errorf("got error %v, want ErrForm", err)
	}
}
