package snapshot

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/checks"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/test/expect"
)

// never is no self-check.
const never = 0

// TestVerify: when other API servers answer, all that was loaded before is compared, and answered
// meanwhile. What differs is loaded anew, and dropped at once if it is another state.
func TestVerify(t *testing.T) {
	times := func(n, code int) func(*checked) {
		return func(c *checked) {
			c.instead = func(*http.Request) (int, string) {
				if n--; n < 0 {
					return 0, ""
				}
				return code, ""
			}
		}
	}
	for name, tt := range map[string]struct {
		happens func(*checked)
		ago     time.Duration // the API servers changed
		asked   string        // the first bytes of the pages that are compared, or "some"
		loads   int           // more than the first, in twenty minutes
		within  time.Duration // the first of them; it is answered until then
		dropped bool
	}{
		"nothing is wrong": {happens: func(*checked) {}, asked: "0 5 9"},
		"loaded since":     {happens: func(*checked) {}, ago: time.Hour},
		"other bytes": {
			happens: func(c *checked) { c.writtenAs("n/1100", "by default") }, // on the last page
			asked:   "0 5 9 9", loads: 1, within: Skew + 10*time.Second,
		},
		"shards are not known": {
			happens: func(c *checked) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.shards = false
			},
			asked: "some", loads: 1, within: Skew + 10*time.Second,
		},
		"another state": {
			happens: func(c *checked) {
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.objects, "n/1100")
			},
			asked: "some", loads: 1, within: Skew, dropped: true,
		},
		"gone, then there": {
			happens: func(c *checked) {
				gone := false
				c.instead = func(r *http.Request) (int, string) {
					if was := gone; !was && r.URL.Query().Get("continue") != "" {
						gone = true
						return http.StatusGone, ""
					}
					return 0, ""
				}
			},
			asked: "0 5 5 9",
		},
		"busy for a while": {happens: times(3, http.StatusTooManyRequests), asked: "0 0 0 0 5 9"},
		"never answered":   {happens: times(1e6, http.StatusInternalServerError), asked: "some", loads: 1, within: verifyFor + time.Minute},
	} {
		inBubble(t, name, func(t *testing.T) {
			c := newCheckedEvery(t, newLibrary(1200), never)
			was := c.use(t)
			tt.happens(c)
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
				if _, why := c.use(t).Latest(t.Context(), 0); why != reason.None {
					t.Fatalf("after %v: %q; log:\n%s", time.Since(begun), why, c.log)
				}
			}
			var pages []string
			for _, asked := range c.asked() {
				page := "0"
				if _, from, found := strings.Cut(asked, ":n/0"); found {
					page = from[:1]
					if page == "4" {
						page = "5"
					}
				}
				pages = append(pages, page)
			}
			if got := strings.Join(pages, " "); got != tt.asked && tt.asked != "some" {
				t.Errorf("compared pages %q, want %q", got, tt.asked)
			}
			if c.loaded() != 1+tt.loads || loaded > tt.within || tt.loads > 0 && tt.within > time.Minute && loaded < verifyFor {
				t.Errorf("loaded %d times, again after %v; log:\n%s", c.loaded(), loaded, c.log)
			}
			if dropped := was.whyRetired() != reason.None; dropped != tt.dropped {
				t.Errorf("dropped: %t", dropped)
			}
			if wrong := c.collections.checks.Stats(c.resource).Mismatches; (wrong > 0) != tt.dropped {
				t.Errorf("%d mismatches: what API servers write differently is no mistake", wrong)
			}
			s, _ := c.use(t).Latest(t.Context(), 0)
			got := s.Page(index.Query{}, nil).Objects
			if len(got) != len(c.objects) {
				t.Fatalf("%d objects, want %d", len(got), len(c.objects))
			}
			for _, o := range got {
				if string(o.Bytes) != c.item(o.Key, false) {
					t.Errorf("%s, want %s", o.Bytes, c.item(o.Key, false))
				}
			}
		})
	}
}

// TestVerifiedAfterADefinitionChanged: what was loaded since may be of an API server that was slow to
// learn of the change. So all of it is compared, once, when every API server has learnt of it.
func TestVerifiedAfterADefinitionChanged(t *testing.T) {
	for name, slow := range map[string]bool{"loaded from a slow API server": true, "nothing is wrong": false} {
		inBubble(t, name, func(t *testing.T) {
			c := newCheckedEvery(t, newLibrary(1200), never)
			change := c.definitionChanged()
			c.collections.Invalidate(change)
			time.Sleep(change.Until.after / 2)
			c.collections.Invalidate(change)
			time.Sleep(change.Until.after)
			c.use(t)
			synctest.Wait()
			if slow {
				c.writtenAs("n/1100", "by default") // on the last page
			}
			time.Sleep(lagging - time.Second)
			if asked := c.asked(); len(asked) != 0 {
				t.Errorf("compared while API servers may not know of it: %q", asked)
			}
			time.Sleep(10 * time.Minute)
			pages, loads := []string{media.JSONType + " ", media.JSONType + " 1210:n/0499\x00", media.JSONType + " 1210:n/0999\x00"}, 2
			if slow {
				pages, loads = append(pages, pages[2]), 3 // confirmed
			}
			expect.Same(t, pages, c.asked())
			if c.loaded() != loads {
				t.Errorf("loaded %d times, want %d; log:\n%s", c.loaded(), loads, c.log)
			}
			s, absence := c.use(t).Latest(t.Context(), 0)
			if absence != reason.None {
				t.Fatalf("afterwards: %q", absence)
			}
			if o, found := s.tree.Get("n/1100"); !found || string(o.Bytes) != c.item("n/1100", false) {
				t.Errorf("afterwards: %s, want %s", o.Bytes, c.item("n/1100", false))
			}
		})
	}
}

// TestVerifiedInOrder: eager collections first, each once at a time, and again where there is more doubt
// meanwhile.
func TestVerifiedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Collections{
			ctx: t.Context(), config: Config{Log: slog.New(slog.DiscardHandler)}, checks: checks.Memory[Resource]{}, toVerify: make(chan struct{}, maxVerifying), eager: map[Resource]struct{}{},
		}
		eager := resourceNamed("eager")
		c.eager[eager], c.all = struct{}{}, map[Resource]*running{}
		for _, r := range []Resource{resourceNamed("a"), eager, resourceNamed("b")} {
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
		if again, pause := c.nextToVerify(time.Now()); again != nil || pause < verifyRest/2 || pause > verifyRest {
			t.Errorf("there was more doubt meanwhile, and the next comparison is in %v", pause)
		}
		time.Sleep(verifyRest)
		if again, _ := c.nextToVerify(time.Now()); again != first {
			t.Error("there was more doubt meanwhile, and nothing follows")
		}
		c.endVerification(second, second.verification.since, 1, nil)
		if again, _ := c.nextToVerify(time.Now()); again != nil {
			t.Errorf("%v is verified again, and nothing was wrong", again.resource)
		}
	})
}
