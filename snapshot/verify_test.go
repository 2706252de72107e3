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

// TestVerify: when other API servers answer, all that was loaded before is compared, and answered
// meanwhile. What differs is loaded anew, and dropped at once if it is another state.
func TestVerify(t *testing.T) {
	const first, second, third = "", "n/0499\x00", "n/0999\x00"
	for name, tt := range map[string]struct {
		happens  func(*checked, *Collection)
		ago      time.Duration // the API servers changed
		compared []string      // the pages; nil: not tested
		loads    int           // more than the first, in twenty minutes
		within   time.Duration // the first of them; it is answered until then
		dropped  bool
	}{
		"nothing is wrong": {compared: []string{first, second, third}},
		"loaded since":     {ago: time.Hour, compared: []string{}},
		"other bytes": {
			happens:  func(_ *checked, c *Collection) { corrupt(c, changeOne("n/1100", changeByte)) },
			compared: []string{first, second, third, third}, loads: 1, within: Skew + 10*time.Second,
		},
		"another state": {
			happens: func(_ *checked, c *Collection) { corrupt(c, removeOne("n/1100")) },
			loads:   1, within: Skew, dropped: true,
		},
		"another state, again within the hour": {
			happens: func(all *checked, c *Collection) {
				all.collections.checks.record(widgets, CheckMismatch, time.Now())
				corrupt(c, removeOne("n/1100"))
			},
			loads: 1, within: Skew, dropped: true,
		},
		"gone, then there": {
			happens: func(c *checked, _ *Collection) {
				gone := times(1, http.StatusGone, "")
				c.setInstead(func(r *http.Request) (int, string) {
					if r.URL.Query().Has("continue") {
						return gone(r)
					}
					return 0, ""
				})
			},
			compared: []string{first, second, second, third},
		},
		"busy for a while": {
			happens:  func(c *checked, _ *Collection) { c.setInstead(times(3, http.StatusTooManyRequests, "")) },
			compared: []string{first, first, first, first, second, third},
		},
		"never answered": {
			happens: func(c *checked, _ *Collection) { c.setInstead(times(1e6, http.StatusInternalServerError, "")) },
			loads:   1, within: verifyTimeout + time.Minute,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := newChecked(t, 1200, never)
			before := c.use(t)
			if tt.happens != nil {
				tt.happens(c, before)
			}
			begun := time.Now()
			if tt.ago > 0 {
				c.collections.mustVerify(Scope{}, time.Now().Add(-tt.ago))
			} else {
				c.collections.Verify(Scope{}, "an API server announced itself")
			}
			loaded := time.Duration(0)
			for time.Since(begun) < 20*time.Minute {
				time.Sleep(time.Second)
				synctest.Wait()
				if loaded == 0 && c.loaded() > 1 {
					loaded = time.Since(begun)
				}
				if _, why := c.use(t).NotOlderThan(t.Context(), 0); why != reason.None {
					t.Fatalf("after %v: %q; log:\n%s", time.Since(begun), why, c.log)
				}
			}
			if tt.compared != nil {
				expect.Same(t, tt.compared, c.compared())
			}
			if c.loaded() != 1+tt.loads || loaded > tt.within || tt.loads > 0 && tt.within > time.Minute && loaded < verifyTimeout {
				t.Errorf("loaded %d times, again after %v; log:\n%s", c.loaded(), loaded, c.log)
			}
			if dropped := before.whyRetired() != reason.None; dropped != tt.dropped {
				t.Errorf("dropped: %t", dropped)
			}
			if wrong := c.collections.Mismatches()[widgets].Count; (wrong > 0) != tt.dropped {
				t.Errorf("%d mismatches: what API servers write differently is no mistake", wrong)
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
