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
	const first, second, third = "bytes ", "bytes n/0499\x00", "bytes n/0999\x00"
	for name, tt := range map[string]struct {
		happens func(*checked, *Collection)
		ago     time.Duration // the API servers changed
		asked   []string      // the pages that are compared; nil: some
		loads   int           // more than the first, in twenty minutes
		within  time.Duration // the first of them; it is answered until then
		dropped bool
	}{
		"nothing is wrong": {asked: []string{first, second, third}},
		"loaded since":     {ago: time.Hour, asked: []string{}},
		"other bytes": {
			happens: func(_ *checked, c *Collection) { corrupt(c, aByte) },
			asked:   []string{first, second, third, third}, loads: 1, within: Skew + 10*time.Second,
		},
		"another state": {
			happens: func(_ *checked, c *Collection) { corrupt(c, isMissing) },
			loads:   1, within: Skew, dropped: true,
		},
		"another state, again within the hour": {
			happens: func(all *checked, c *Collection) {
				all.collections.checks.record(widgets, CheckMismatch, place{}, time.Now(), unlikelyRetry)
				corrupt(c, isMissing)
			},
			loads: 1, within: Skew, dropped: true,
		},
		"gone, then there": {
			happens: func(c *checked, _ *Collection) {
				gone := times(1, http.StatusGone, "")
				c.answers(func(r *http.Request) (int, string) {
					if r.URL.Query().Has("continue") {
						return gone(r)
					}
					return 0, ""
				})
			},
			asked: []string{first, second, second, third},
		},
		"busy for a while": {
			happens: func(c *checked, _ *Collection) { c.answers(times(3, http.StatusTooManyRequests, "")) },
			asked:   []string{first, first, first, first, second, third},
		},
		"never answered": {
			happens: func(c *checked, _ *Collection) { c.answers(times(1e6, http.StatusInternalServerError, "")) },
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
				c.collections.Verify("an API server announced itself")
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
			if tt.asked != nil {
				expect.Same(t, tt.asked, c.requests())
			}
			if c.loaded() != 1+tt.loads || loaded > tt.within || tt.loads > 0 && tt.within > time.Minute && loaded < verifyTimeout {
				t.Errorf("loaded %d times, again after %v; log:\n%s", c.loaded(), loaded, c.log)
			}
			if dropped := before.whyRetired() != reason.None; dropped != tt.dropped {
				t.Errorf("dropped: %t", dropped)
			}
			if wrong := c.collections.checks.stats(widgets).Mismatches; (wrong > 0) != tt.dropped {
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
		all.Verify("an API server announced itself")
		time.Sleep(time.Minute)
		u.mu.Lock()
		u.intercept = nil
		u.mu.Unlock()
		if u.loads != 1 || counted != 1 {
			t.Errorf("nothing has changed, and it was loaded %d times; how many there are was asked %d times", u.loads, counted)
		}
		all.Verify("another one did")
		time.Sleep(minVerifyInterval + Skew)
		synctest.Wait()
		if _, why := c.NotOlderThan(t.Context(), 9); u.loads != 2 || why != reason.None {
			t.Errorf("loaded %d times: %q", u.loads, why)
		}
	})
}

// TestVerifiedAfterADefinitionChanged: what was loaded since may be of an API server that was slow to
// learn of the change. So all of it is compared, once, when every API server has learnt of it.
func TestVerifiedAfterADefinitionChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t, 1200, never)
		c.collections.Invalidate(definitionChanged)
		time.Sleep(definitionChanged.Until.after / 2)
		c.collections.Invalidate(definitionChanged)
		time.Sleep(definitionChanged.Until.after)
		again := c.use(t)
		synctest.Wait()
		corrupt(again, aByte)
		time.Sleep(maxLag - time.Second)
		if asked := c.requests(); len(asked) != 0 {
			t.Errorf("compared while API servers may not know of it: %q", asked)
		}
		time.Sleep(10 * time.Minute)
		expect.Same(t, []string{"bytes ", "bytes n/0499\x00", "bytes n/0999\x00", "bytes n/0999\x00"}, c.requests()) // confirmed
		if c.loaded() != 3 {
			t.Errorf("loaded %d times; log:\n%s", c.loaded(), c.log)
		}
		c.expectRight(t)
	})
}

// TestVerifiedInOrder: eager collections first, each once at a time, and again where there is more doubt
// meanwhile.
func TestVerifiedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Collections{
			ctx: t.Context(), config: Config{Log: slog.New(slog.DiscardHandler)}, checks: selfChecks{}, toVerify: make(chan struct{}, maxVerifying), eager: map[CollectionKey]struct{}{},
		}
		eager := resourceNamed("eager")
		c.eager[eager], c.all = struct{}{}, map[CollectionKey]*running{}
		for _, r := range []CollectionKey{resourceNamed("a"), eager, resourceNamed("b")} {
			c.all[r] = &running{Collection: &Collection{resource: r}}
		}
		c.mustVerify(Scope{}, time.Now())
		first, _ := c.nextToVerify(time.Now())
		second, _ := c.nextToVerify(time.Now())
		third, _ := c.nextToVerify(time.Now())
		if first.resource != eager || second == third || second == first {
			t.Errorf("%v, %v and %v", first.resource, second.resource, third.resource)
		}
		if more, pause := c.nextToVerify(time.Now()); more != nil || pause < time.Minute {
			t.Errorf("one too many, in %v", pause)
		}
		since := first.verification.since
		time.Sleep(time.Second)
		c.mustVerify(OfCollection(eager), time.Now())
		c.endVerification(first, since, 1, nil)
		if again, pause := c.nextToVerify(time.Now()); again != nil || pause < minVerifyInterval/2 || pause > minVerifyInterval {
			t.Errorf("there was more doubt meanwhile, and the next comparison is in %v", pause)
		}
		time.Sleep(minVerifyInterval)
		if again, _ := c.nextToVerify(time.Now()); again != first {
			t.Error("there was more doubt meanwhile, and nothing follows")
		}
		c.endVerification(second, second.verification.since, 1, nil)
		if again, _ := c.nextToVerify(time.Now()); again != nil {
			t.Errorf("%v is verified again, and nothing was wrong", again.resource)
		}
	})
}
