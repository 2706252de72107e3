package snapshot

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestVerify: Verify compares all that was loaded before, which is answered meanwhile. A collection that differs is loaded
// anew. If objects differ, and not only bytes, it is dropped at once and counts as a mismatch.
func TestVerify(t *testing.T) {
	const first, second, third = "", "n/0499\x00", "n/0999\x00" // the keys with which the pages of 1200 objects begin
	for name, tt := range map[string]struct {
		prepare      func(*checked, *Collection)
		changedAgo   time.Duration // the time since the API servers changed
		wantCompared []string      // nil: any pages
		wantReload   time.Duration // the latest time of the only reload; 0: none
		wantDropped  bool
	}{
		"nothing differs":         {wantCompared: []string{first, second, third}},
		"loaded after the change": {changedAgo: time.Hour, wantCompared: []string{}},
		"bytes of an object differ": {
			prepare:      func(_ *checked, c *Collection) { corrupt(c, changeOne("n/1100", changeByte)) },
			wantCompared: []string{first, second, third, third}, wantReload: Skew + 10*time.Second,
		},
		"an object is missing": {
			prepare:    func(_ *checked, c *Collection) { corrupt(c, removeOne("n/1100")) },
			wantReload: Skew, wantDropped: true,
		},
		"an object is missing again within mismatchWindow": {
			prepare: func(all *checked, c *Collection) {
				all.collections.checks.record(widgets, CheckMismatch, time.Now())
				corrupt(c, removeOne("n/1100"))
			},
			wantReload: Skew, wantDropped: true,
		},
		"the second page is answered 410 once": {
			prepare: func(c *checked, _ *Collection) {
				gone := times(1, http.StatusGone, "")
				c.setInstead(func(r *http.Request) (int, string) {
					if r.URL.Query().Has("continue") {
						return gone(r)
					}
					return 0, ""
				})
			},
			wantCompared: []string{first, second, second, third},
		},
		"the first page is answered 429 three times": {
			prepare:      func(c *checked, _ *Collection) { c.setInstead(times(3, http.StatusTooManyRequests, "")) },
			wantCompared: []string{first, first, first, first, second, third},
		},
		"all is answered 500": {
			prepare:    func(c *checked, _ *Collection) { c.setInstead(times(1e6, http.StatusInternalServerError, "")) },
			wantReload: verifyTimeout + time.Minute,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := newChecked(t, 1200, never)
			before := c.use(t)
			if tt.prepare != nil {
				tt.prepare(c, before)
			}
			begun := time.Now()
			if tt.changedAgo > 0 {
				c.collections.mustVerify(Scope{}, begun.Add(-tt.changedAgo))
			} else {
				c.collections.Verify(Scope{}, "an API server announced itself")
			}
			reloadedAfter := time.Duration(0)
			for time.Since(begun) < 20*time.Minute {
				time.Sleep(time.Second)
				synctest.Wait()
				if reloadedAfter == 0 && c.loaded() > 1 {
					reloadedAfter = time.Since(begun)
				}
				if _, why := c.use(t).NotOlderThan(t.Context(), 0); why != reason.None {
					t.Fatalf("forwarded because of %q after %v; log:\n%s", why, time.Since(begun), c.log)
				}
			}
			if tt.wantCompared != nil {
				expect.Same(t, tt.wantCompared, c.compared())
			}
			wantLoads := 1
			if tt.wantReload > 0 {
				wantLoads = 2
			}
			if c.loaded() != wantLoads || reloadedAfter > tt.wantReload {
				t.Errorf("%d loads, want %d; reloaded after %v, want %v at most; log:\n%s", c.loaded(), wantLoads, reloadedAfter, tt.wantReload, c.log)
			}
			if tt.wantReload > verifyTimeout && reloadedAfter < verifyTimeout {
				t.Errorf("reloaded after %v, want %v at least", reloadedAfter, verifyTimeout)
			}
			if dropped := before.whyRetired() != reason.None; dropped != tt.wantDropped {
				t.Errorf("dropped: %t, want %t", dropped, tt.wantDropped)
			}
			if n := c.collections.Mismatches()[widgets].Count; (n > 0) != tt.wantDropped {
				t.Errorf("%d mismatches, want some: %t", n, tt.wantDropped)
			}
			c.expectRight(t)
		})
	}
}

// TestVerifyShards: where an API server does not know shards any more, which it knew when the state was
// loaded, it is loaded anew. Like 1.37, this one does not count what remains after a page of a shard, so
// it is asked for how many there are without a shard.
func TestVerifyShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, counted := &upstream{revision: 9}, 0
		u.intercept = func(r *http.Request, kind string) (time.Duration, *http.Response) {
			shards := fmt.Sprintf(`,"shardInfo":{"selector":%q}`, wire.AllShards)
			switch q := r.URL.Query(); {
			case kind == "list" && !q.Has("shardSelector") && q.Get("limit") == sample:
				counted++
				return 0, nil
			case kind != "list" || !q.Has("shardSelector"):
				return 0, nil
			case q.Get("limit") == sample:
				return 0, proxytest.JSONResponse(r, http.StatusOK, u.list(9, `,"continue":"x"`+shards, itemA))
			}
			return 0, proxytest.JSONResponse(r, http.StatusOK, u.list(9, shards, itemA, itemB))
		}
		all := newCollections(t, u)
		c := expectUse(t, "at first", all, configMaps, reason.None)
		all.Verify(Scope{}, "an API server announced itself")
		time.Sleep(time.Minute)
		u.mu.Lock()
		u.intercept = nil
		u.mu.Unlock()
		if u.loads != 1 || counted != 1 {
			t.Errorf("nothing has changed, and it was loaded %d times; how many there are was asked %d times", u.loads, counted)
		}
		all.Verify(Scope{}, "another one did")
		time.Sleep(minVerifyInterval + Skew)
		synctest.Wait()
		if _, why := c.NotOlderThan(t.Context(), 9); u.loads != 2 || why != reason.None {
			t.Errorf("loaded %d times: %q", u.loads, why)
		}
	})
}

// TestVerifyAfterSkew: what was loaded after a change of a definition may be of an API server that did not know the
// change. So all of it is compared when every API server knows the change.
func TestVerifyAfterSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t, 1200, never)
		c.collections.Invalidate(definitionChanged)
		time.Sleep(Skew)
		again := c.use(t)
		synctest.Wait()
		corrupt(again, changeOne("n/1100", changeByte))
		time.Sleep(maxLag - time.Second)
		if compared := c.compared(); len(compared) != 0 {
			t.Errorf("compared while API servers may not know the change: %q", compared)
		}
		time.Sleep(10 * time.Minute)
		expect.Same(t, []string{"", "n/0499\x00", "n/0999\x00", "n/0999\x00"}, c.compared()) // the last page twice, since it differs
		if c.loaded() != 3 {
			t.Errorf("loaded %d times, want 3; log:\n%s", c.loaded(), c.log)
		}
		c.expectRight(t)
	})
}

// TestVerifiedInOrder: eager collections first, each once at a time, and again where there is more doubt
// meanwhile.
func TestVerifiedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Collections{
			ctx: t.Context(), config: Config{Log: slog.New(slog.DiscardHandler)}, eager: map[CollectionKey]struct{}{},
		}
		eager := resourceNamed("eager")
		c.eager[eager], c.all = struct{}{}, map[CollectionKey]*running{}
		for _, r := range []CollectionKey{resourceNamed("a"), eager, resourceNamed("b")} {
			c.all[r] = &running{Collection: &Collection{resource: r}}
		}
		c.mustVerify(Scope{}, time.Now())
		first, since := c.nextToVerify(time.Now())
		second, _ := c.nextToVerify(time.Now())
		third, _ := c.nextToVerify(time.Now())
		if first.resource != eager || second == third || second == first {
			t.Errorf("verified in the order %v, %v, %v, want %v first and each once", first.resource, second.resource, third.resource, eager)
		}
		expectNext := func(when string, want *running) {
			t.Helper()
			if next, _ := c.nextToVerify(time.Now()); next != want {
				t.Errorf("%s: verified next is %v, want %v", when, next, want)
			}
		}
		expectNext("while all are verified", nil)
		time.Sleep(time.Second)
		c.mustVerify(OfCollection(eager), time.Now())
		c.endVerification(first, since, 1, nil)
		expectNext("a second after the last time", nil)
		time.Sleep(minVerifyInterval)
		expectNext("after API servers changed again during the comparison", first)
		c.endVerification(second, second.verification.since, 1, nil)
		expectNext("after the second agreed", nil)
	})
}
