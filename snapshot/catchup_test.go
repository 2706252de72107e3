package snapshot

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestPendingProbesAreBounded: recordProbe keeps at most maxPendingProbes probes, however long a stream lags. The state is as
// new as the last of these that was reached.
func TestPendingProbesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = time.Minute
		const last = 1999 // so many probes, in twice the bound, that most are not kept
		c := liveCollection(Limits{History: time.Hour, Staleness: bound})
		for revision := uint64(11); revision <= last; revision++ {
			time.Sleep(bound / 1000)
			c.recordProbe(probeResult{revision: revision, probe: probeSentAt(c, time.Now())})
			if n := len(c.pendingProbes); n > maxPendingProbes {
				t.Fatalf("%d pending probes, want at most %d", n, maxPendingProbes)
			}
		}
		expect.NoError(t, c.applyBookmark(last))
		if age := time.Since(c.view.Load().provenBy.Sent); age > bound/20 {
			t.Errorf("the state is %v old, want at most %v", age, bound/20)
		}
		if len(c.pendingProbes) > 1 {
			t.Errorf("got the pending probes %v after all were reached, want at most one", c.pendingProbes)
		}
	})
}

// TestALongLoadIsNotNew: a state that took long to load counts as current at the request for it, until the feed's watch has
// reached the upstream's revision.
func TestALongLoadIsNotNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const loadTime = 20 * time.Second
		u := &upstream{revision: 9}
		pages := loadInPages(configMapList(9, `,"continue":"x"`, itemA), configMapList(9, "", itemB))
		u.intercept = func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
			hold, page := pages(r, kind)
			if r.URL.Query().Has("continue") {
				hold = loadTime
				u.revision = 30
			}
			return hold, page
		}
		v := runFeed(t, u, loadTime+time.Second).view.Load()
		if v.To != 9 {
			t.Fatalf("the state is at revision %d, want 9: it is not up to date yet", v.To)
		}
		if age := time.Since(v.provenBy.Sent); age < loadTime {
			t.Errorf("the state counts as %v old, want at least %v", age, loadTime)
		}
	})
}

// TestLoadsThatTrickle: a load that trickles holds up other loads for at most loadSlotTimeout. It ends within loadTimeout, and
// is not repeated within unlikelyRetry.
func TestLoadsThatTrickle(t *testing.T) {
	for name, trickle := range map[string]interceptor{
		"streaming lists": answerKind(kindStreamingList, func(r *http.Request) *http.Response {
			return lastingResponse(r, "", bookmark(5, ""), loadSilence/2)
		}),
		"pages": func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
			endless := configMapList(9, `,"continue":"x"`)
			hold, page := loadInPages(endless, endless)(r, kind)
			if page != nil && page.StatusCode == http.StatusOK { // there is always another page
				hold = 20 * time.Second
			}
			return hold, page
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			loads := 0
			u := &upstream{revision: 9}
			u.intercept = func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
				if !strings.HasPrefix(r.URL.Path, "/apis/slow") {
					return 0, nil
				}
				if kind == kindStreamingList {
					loads++
				}
				return trickle(r, kind)
			}
			all := newCollections(t, u)
			var slow []*Collection // as many as may load at once
			for i := range maxLoads {
				key := configMaps
				key.Group = fmt.Sprint("slow", i)
				collection, _ := all.Use(key)
				slow = append(slow, collection)
			}
			synctest.Wait()
			quick, _ := all.Keep(configMaps)
			time.Sleep(loadSlotTimeout - time.Second)
			if why := quick.AwaitLoad(t.Context(), 0, FirstLoad); why != reason.Warming {
				t.Errorf("another resource, while %d are loading: got reason %q, want %q", maxLoads, why, reason.Warming)
			}
			time.Sleep(2 * time.Second)
			if why := quick.AwaitLoad(t.Context(), 0, FirstLoad); why != reason.None {
				t.Errorf("another resource, after loads have given up their slots: got reason %q, want a state", why)
			}
			time.Sleep(loadTimeout)
			for _, collection := range slow {
				if err := collection.LoadError(); !errors.Is(err, errSlow) {
					t.Errorf("the load's error after %v: got %v, want %v", loadTimeout, err, errSlow)
				}
			}
			time.Sleep(unlikelyRetry - 2*loadSlotTimeout)
			synctest.Wait()
			if loads != maxLoads {
				t.Errorf("got %d loads within %v, want %d: one of each resource", loads, unlikelyRetry, maxLoads)
			}
		})
	}
}
