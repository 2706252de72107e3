package snapshot

import (
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestVerify: Verify, which is called after a change of the API servers, compares a collection with the upstream, page by page.
// Lists are answered from memory meanwhile.
//
//   - If nothing differs, the collection is kept.
//   - If only bytes differ, its state is loaded anew.
//   - If it has other objects, it is dropped, loaded anew at once, and a mismatch is counted.
//   - If it could not be compared for verifyTimeout, its state is loaded anew.
//
// The collection has 1200 objects, so it is compared in three pages.
func TestVerify(t *testing.T) {
	changeByteOnPage3 := func(_ *checkedWidgets, c *Collection) { corrupt(c, changeOne(keyOnPage3, changeByte)) }
	removeFromPage3 := func(_ *checkedWidgets, c *Collection) { corrupt(c, removeOne(keyOnPage3)) }
	comparisonsGet := func(answer answerer) func(*checkedWidgets, *Collection) {
		return func(w *checkedWidgets, _ *Collection) { w.answerComparisons(answer) }
	}
	goneOnce := answerFirst(1, refuse(http.StatusGone))
	secondPageIsGoneOnce := func(r *http.Request) *http.Response {
		isFirstPage := !r.URL.Query().Has("continue")
		if isFirstPage {
			return nil
		}
		return goneOnce(r)
	}
	for name, tt := range map[string]struct {
		prepare      func(*checkedWidgets, *Collection) // called before Verify; nil: nothing differs
		wantCompared []string                           // the pages that are asked for, in order; nil: any
		// The state is loaded anew between these times after Verify. If both are 0, it is not loaded anew.
		wantReloadFrom, wantReloadTo time.Duration
		wantDropped                  bool // the collection is dropped, and a mismatch is counted
	}{
		"nothing differs": {wantCompared: []string{page1, page2, page3}},
		"bytes of an object differ": {
			prepare:      changeByteOnPage3,
			wantCompared: []string{page1, page2, page3, page3}, // a page whose bytes differ is compared again after Skew
			wantReloadTo: Skew + 10*time.Second,
		},
		"an object is missing": {
			prepare:      removeFromPage3,
			wantReloadTo: Skew, wantDropped: true,
		},
		"an object is missing again within mismatchWindow": { // no ban, since no self-check has found it
			prepare: func(w *checkedWidgets, c *Collection) {
				w.collections.countCheck(widgets, CheckMismatch, time.Now())
				removeFromPage3(w, c)
			},
			wantReloadTo: Skew, wantDropped: true,
		},
		"the second page is answered 410 once": {
			prepare:      comparisonsGet(secondPageIsGoneOnce),
			wantCompared: []string{page1, page2, page2, page3},
		},
		"the first page is answered 429 three times": {
			prepare:      comparisonsGet(answerFirst(3, refuse(http.StatusTooManyRequests))),
			wantCompared: []string{page1, page1, page1, page1, page2, page3},
		},
		"every page is answered 500": {
			prepare:        comparisonsGet(refuse(http.StatusInternalServerError)),
			wantReloadFrom: verifyTimeout, wantReloadTo: verifyTimeout + time.Minute,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newCheckedWidgets(t, threePages, noSelfChecks)
			original := w.mustUse(t)
			if tt.prepare != nil {
				tt.prepare(w, original)
			}

			// For 20 minutes after Verify, there must be a state in each second.
			allCollections := Scope{}
			begunAt := time.Now()
			w.collections.Verify(allCollections)
			reloadedAfter := time.Duration(0) // 0: not yet
			for time.Since(begunAt) < 20*time.Minute {
				time.Sleep(time.Second)
				synctest.Wait()
				if reloadedAfter == 0 && w.loaded() > 1 {
					reloadedAfter = time.Since(begunAt)
				}
				if _, unavailable := w.mustUse(t).NotOlderThan(t.Context(), anyRevision); unavailable != reason.None {
					t.Fatalf("after %v: got reason %q, want a state; log:\n%s", time.Since(begunAt), unavailable, w.log)
				}
			}

			if tt.wantCompared != nil {
				expect.Same(t, tt.wantCompared, w.compared())
			}
			wantLoads := 1
			if tt.wantReloadTo > 0 {
				wantLoads = 2
			}
			w.expectLoads(t, wantLoads)
			if reloadedAfter < tt.wantReloadFrom || reloadedAfter > tt.wantReloadTo {
				t.Errorf("reloaded after %v, want %v to %v; log:\n%s", reloadedAfter, tt.wantReloadFrom, tt.wantReloadTo, w.log)
			}
			if dropped := whyRetired(original) != reason.None; dropped != tt.wantDropped {
				t.Errorf("the collection is dropped: got %t, want %t", dropped, tt.wantDropped)
			}
			if n := w.collections.Mismatches()[widgets].Count; (n > 0) != tt.wantDropped {
				t.Errorf("got %d mismatches, want some: %t", n, tt.wantDropped)
			}
			w.expectRight(t)
		})
	}
}

// TestVerifyNewerLoad: a collection whose state was loaded after the API servers changed is not compared.
func TestVerifyNewerLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCheckedWidgets(t, threePages, noSelfChecks)
		anHourBeforeLoad := time.Now().Add(-time.Hour)
		w.collections.mu.Lock()
		w.collections.all[widgets].verification.requiredAt = anHourBeforeLoad // as if Verify had been called then
		w.collections.mu.Unlock()
		time.Sleep(20 * time.Minute)
		expect.Same(t, []string{}, w.compared())
		w.expectLoads(t, 1)
	})
}

// TestVerifyShards: if API servers that know shards (parts of a list that a shardSelector selects) are replaced by one that
// does not, Verify lets the state be loaded anew.
func TestVerifyShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, "a", "b")
		p.intercept(answerAsBuiltIn(knowsShards))
		collections := newCollections(t, p)
		c := expectUse(t, "at first", collections, widgets, reason.None)
		verifyAndExpectLoads := func(servers string, want int) {
			t.Helper()
			collections.Verify(Scope{})
			time.Sleep(verifyEvery + Skew)
			synctest.Wait()
			if loads := p.count(kindStreamingList); loads != want {
				t.Errorf("%s: got %d loads, want %d", servers, loads, want)
			}
		}
		verifyAndExpectLoads("all API servers know shards", 1)
		p.intercept(answerAsBuiltIn(knowsNoShards))
		verifyAndExpectLoads("an API server does not know shards", 2)
		expectUnavailable(t, c, reason.None)
	})
}

// TestVerifyAfterMaxLag: most API servers learn of a changed definition within Skew. Then the collection is loaded, but perhaps
// from a server that has not learned of the change. So the collection is compared maxLag later, when every server has learned
// of it.
func TestVerifyAfterMaxLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The definition changes. The state that is loaded after Skew has a wrong byte.
		w := newCheckedWidgets(t, threePages, noSelfChecks)
		changeDefinition(w.collections)
		time.Sleep(Skew)
		loadedSoon := w.mustUse(t)
		synctest.Wait()
		corrupt(loadedSoon, changeOne(keyOnPage3, changeByte))

		// Until maxLag has passed, nothing is compared. Soon after that, the state is loaded anew.
		time.Sleep(maxLag - time.Second)
		if compared := w.compared(); len(compared) != 0 {
			t.Errorf("while API servers may not know the change: got the compared pages %q, want none", compared)
		}
		time.Sleep(10 * time.Minute)
		const wantLoads = 3 // at first, after the change of the definition, and after the comparison
		w.expectLoads(t, wantLoads)
		expect.Same(t, []string{page1, page2, page3, page3}, w.compared()) // a page that differs is compared once more
		w.expectRight(t)
	})
}

// TestVerifiedInOrder: beginAttempt returns eager collections (those that the policy wants in memory) first, and never one that
// is being compared. If Verify is called again meanwhile, beginAttempt returns the collection again after verifyEvery.
func TestVerifiedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eager := resourceNamed("eager")
		c := &Collections{
			ctx: t.Context(), config: Config{Log: slog.New(slog.DiscardHandler)},
			eager: map[CollectionKey]bool{eager: true}, all: map[CollectionKey]*runningCollection{},
		}
		for _, key := range []CollectionKey{resourceNamed("a"), eager, resourceNamed("b")} {
			c.all[key] = &runningCollection{Collection: &Collection{key: key}}
		}

		// All three collections must be verified. Each is returned once, and the eager one first.
		c.Verify(Scope{})
		first, requiredAt := c.beginAttempt(time.Now())
		second, _ := c.beginAttempt(time.Now())
		third, _ := c.beginAttempt(time.Now())
		if first.key != eager {
			t.Errorf("got %v first, want the eager one, %v", first.key, eager)
		}
		if second == third || second == first || third == first {
			t.Errorf("got %v, %v and %v, want each once", first.key, second.key, third.key)
		}
		expectNext := func(when string, want *runningCollection) {
			t.Helper()
			if next, _ := c.beginAttempt(time.Now()); next != want {
				t.Errorf("%s: got %v next, want %v", when, next, want)
			}
		}
		expectNext("while all are being compared", nil)

		// While the eager collection is being compared, Verify is called for it again.
		const comparedAt = 1 // the revision at which a collection was compared
		var noError error
		time.Sleep(time.Second)
		c.Verify(OfCollection(eager))
		c.endAttempt(first, requiredAt, comparedAt, noError) // what the first Verify required is done
		expectNext("right after the eager collection was compared", nil)
		time.Sleep(verifyEvery)
		expectNext("verifyEvery later", first)

		// Verify is not called again for the second collection.
		c.endAttempt(second, second.verification.requiredAt, comparedAt, noError)
		expectNext("after the second collection was compared", nil)
	})
}
