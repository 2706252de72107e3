package snapshot

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// page1, page2 and page3 are the keys with which the pages of 1200 widgets begin (pageObjects).
const page1, page2, page3 = "", "n/0499\x00", "n/0999\x00"

// TestVerify: Verify compares the collections that were loaded before with the upstream; lists are answered meanwhile. A
// collection that differs is loaded anew. If it has other objects, and not only other bytes, it is dropped at once and counts
// as a mismatch.
func TestVerify(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare        func(*checkedWidgets, *Collection)
		changedAgo     time.Duration // since the API servers changed
		wantCompared   []string      // nil: any pages
		wantLoads      int
		wantReloadFrom time.Duration // the time of the second load is between these
		wantReloadBy   time.Duration
		wantDropped    bool
	}{
		"nothing differs":         {wantCompared: []string{page1, page2, page3}, wantLoads: 1},
		"loaded after the change": {changedAgo: time.Hour, wantCompared: []string{}, wantLoads: 1},
		"bytes of an object differ": {
			prepare:      func(_ *checkedWidgets, c *Collection) { corrupt(c, changeOne("n/1100", changeByte)) },
			wantCompared: []string{page1, page2, page3, page3},
			wantLoads:    2, wantReloadBy: Skew + 10*time.Second,
		},
		"an object is missing": {
			prepare:   func(_ *checkedWidgets, c *Collection) { corrupt(c, removeOne("n/1100")) },
			wantLoads: 2, wantReloadBy: Skew, wantDropped: true,
		},
		"an object is missing again within mismatchWindow": {
			prepare: func(w *checkedWidgets, c *Collection) {
				w.collections.checks.record(widgets, CheckMismatch, time.Now())
				corrupt(c, removeOne("n/1100"))
			},
			wantLoads: 2, wantReloadBy: Skew, wantDropped: true,
		},
		"the second page is answered 410 once": {
			prepare: func(w *checkedWidgets, _ *Collection) {
				gone := firstTimes(1, http.StatusGone, "")
				w.setInstead(func(r *http.Request) (int, string) {
					if r.URL.Query().Has("continue") {
						return gone(r)
					}
					return 0, ""
				})
			},
			wantCompared: []string{page1, page2, page1, page2, page3}, wantLoads: 1,
		},
		"the first page is answered 429 three times": {
			prepare:      func(w *checkedWidgets, _ *Collection) { w.setInstead(firstTimes(3, http.StatusTooManyRequests, "")) },
			wantCompared: []string{page1, page1, page1, page1, page2, page3}, wantLoads: 1,
		},
		"all is answered 500": {
			prepare: func(w *checkedWidgets, _ *Collection) {
				w.setInstead(firstTimes(math.MaxInt, http.StatusInternalServerError, ""))
			},
			wantLoads: 2, wantReloadFrom: verifyTimeout, wantReloadBy: verifyTimeout + time.Minute,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newCheckedWidgets(t, 1200, noSelfChecks)
			before := w.use(t)
			if tt.prepare != nil {
				tt.prepare(w, before)
			}
			begun := time.Now()
			if tt.changedAgo > 0 {
				w.collections.requireVerification(Scope{}, begun.Add(-tt.changedAgo))
			} else {
				w.collections.Verify(Scope{}, "an API server announced itself")
			}
			reloadedAfter := time.Duration(0)
			for time.Since(begun) < 20*time.Minute {
				time.Sleep(time.Second)
				synctest.Wait()
				if reloadedAfter == 0 && w.loaded() > 1 {
					reloadedAfter = time.Since(begun)
				}
				if _, unavailable := w.use(t).NotOlderThan(t.Context(), 0); unavailable != reason.None {
					t.Fatalf("after %v: got reason %q, want a state; log:\n%s", time.Since(begun), unavailable, w.log)
				}
			}
			if tt.wantCompared != nil {
				expect.Same(t, tt.wantCompared, w.compared())
			}
			if loads := w.loaded(); loads != tt.wantLoads {
				t.Errorf("got %d loads, want %d; log:\n%s", loads, tt.wantLoads, w.log)
			}
			if reloadedAfter < tt.wantReloadFrom || reloadedAfter > tt.wantReloadBy {
				t.Errorf("reloaded after %v, want %v to %v; log:\n%s", reloadedAfter, tt.wantReloadFrom, tt.wantReloadBy, w.log)
			}
			if dropped := whyRetired(before) != reason.None; dropped != tt.wantDropped {
				t.Errorf("the collection is dropped: got %t, want %t", dropped, tt.wantDropped)
			}
			if n := w.collections.Mismatches()[widgets].Count; (n > 0) != tt.wantDropped {
				t.Errorf("got %d mismatches, want some: %t", n, tt.wantDropped)
			}
			w.expectRight(t)
		})
	}
}

// TestVerifyShards: a state that was loaded by shards is loaded anew when an API server no longer knows shards. If the API
// server, like 1.37, does not count the objects after a page of a shard, the feed counts them by one list without a shard.
func TestVerifyShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, countingLists := &upstream{revision: 9}, 0
		u.intercept = func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
			q := r.URL.Query()
			isSample := q.Get("limit") == sampleLimit
			if kind != kindList {
				return 0, nil
			}
			if !q.Has("shardSelector") {
				if isSample {
					countingLists++
				}
				return 0, nil
			}
			shards := fmt.Sprintf(`,"shardInfo":{"selector":%q}`, wire.AllShards)
			if isSample {
				return 0, proxytest.JSONResponse(r, http.StatusOK, configMapList(9, `,"continue":"x"`+shards, itemA))
			}
			return 0, proxytest.JSONResponse(r, http.StatusOK, configMapList(9, shards, itemA, itemB))
		}
		collections := newCollections(t, u)
		c := expectUse(t, "at first", collections, configMaps, reason.None)
		collections.Verify(Scope{}, "an API server announced itself")
		time.Sleep(time.Minute)
		u.mu.Lock()
		u.intercept = nil
		u.mu.Unlock()
		if u.loads != 1 {
			t.Errorf("while API servers know shards: got %d loads, want 1", u.loads)
		}
		if countingLists != 1 {
			t.Errorf("while API servers know shards: got %d lists without a shard, want 1", countingLists)
		}
		collections.Verify(Scope{}, "another API server announced itself")
		time.Sleep(verifyEvery + Skew)
		synctest.Wait()
		if u.loads != 2 {
			t.Errorf("after an API server without shards was started: got %d loads, want 2", u.loads)
		}
		expectNewest(t, c, reason.None)
	})
}

// TestVerifyAfterSkew: a collection that was loaded soon after its definition changed is compared with the upstream when every
// API server knows the change (maxLag): the load may have come from one that did not know it yet.
func TestVerifyAfterSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCheckedWidgets(t, 1200, noSelfChecks)
		w.collections.Invalidate(definitionChanged)
		time.Sleep(Skew)
		loadedSoon := w.use(t)
		synctest.Wait()
		corrupt(loadedSoon, changeOne("n/1100", changeByte))
		time.Sleep(maxLag - time.Second)
		if compared := w.compared(); len(compared) != 0 {
			t.Errorf("while API servers may not know the change: got the compared pages %q, want none", compared)
		}
		time.Sleep(10 * time.Minute)
		expect.Same(t, []string{page1, page2, page3, page3}, w.compared()) // the last page twice, since it differs
		const wantLoads = 3                                                // at first, after the change, and since the last page differs
		if loads := w.loaded(); loads != wantLoads {
			t.Errorf("got %d loads, want %d; log:\n%s", loads, wantLoads, w.log)
		}
		w.expectRight(t)
	})
}

// TestVerifiedInOrder: nextToVerify returns eager collections first, and none twice at a time. A collection that is put in
// doubt again during its comparison is returned again after verifyEvery.
func TestVerifiedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Collections{
			ctx: t.Context(), config: Config{Log: slog.New(slog.DiscardHandler)}, eager: map[CollectionKey]struct{}{},
		}
		eager := resourceNamed("eager")
		c.eager[eager] = struct{}{}
		c.all = map[CollectionKey]*runningCollection{}
		for _, r := range []CollectionKey{resourceNamed("a"), eager, resourceNamed("b")} {
			c.all[r] = &runningCollection{Collection: &Collection{key: r}}
		}
		c.requireVerification(Scope{}, time.Now())
		first, since := c.nextToVerify(time.Now())
		second, _ := c.nextToVerify(time.Now())
		third, _ := c.nextToVerify(time.Now())
		if first.key != eager {
			t.Errorf("got %v first, want the eager one, %v", first.key, eager)
		}
		if second == third || second == first || third == first {
			t.Errorf("got %v, %v and %v, want each once", first.key, second.key, third.key)
		}
		expectNext := func(when string, want *runningCollection) {
			t.Helper()
			if next, _ := c.nextToVerify(time.Now()); next != want {
				t.Errorf("%s: got %v next, want %v", when, next, want)
			}
		}
		expectNext("while all are being verified", nil)
		time.Sleep(time.Second)
		c.requireVerification(OfCollection(eager), time.Now())
		c.endVerification(first, since, 1, nil)
		expectNext("a second after it was compared, though it is in doubt", nil)
		time.Sleep(verifyEvery)
		expectNext("verifyEvery later", first)
		c.endVerification(second, second.verification.requiredAt, 1, nil)
		expectNext("after the second collection agreed", nil)
	})
}
