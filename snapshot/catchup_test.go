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

// TestPendingProbesAreBounded: however long a stream lags, few probes are kept. The state is as new as the last of
// these that was reached.
func TestPendingProbesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = time.Minute
		c := liveCollection(Limits{History: time.Hour, Staleness: bound})
		const last = 1999
		for revision := uint64(11); revision <= last; revision++ {
			time.Sleep(bound / 1000)
			c.recordProbe(probeResult{revision: revision, probe: c.at(time.Now())})
			if n := len(c.pendingProbes); n > maxPendingProbes {
				t.Fatalf("%d pending probes, want at most %d", n, maxPendingProbes)
			}
		}
		expect.NoError(t, c.progress(last))
		if old := time.Since(c.view.Load().currentAt.Sent); old > bound/20 || len(c.pendingProbes) > 1 {
			t.Errorf("the state is %v old, want less than %v; the probes %v are still pending", old, bound/20, c.pendingProbes)
		}
	})
}

// TestALongLoadIsNotNew: a state that took long to load is as new as the request for it, until the feed's watch has
// reached the upstream's revision.
func TestALongLoadIsNotNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 20 * time.Second
		u := &upstream{revision: 9}
		pages := loadInPages(u.list(9, `,"continue":"x"`, itemA), u.list(9, "", itemB))
		u.intercept = func(r *http.Request, kind string) (time.Duration, *http.Response) {
			hold, page := pages(r, kind)
			if r.URL.Query().Has("continue") {
				hold, u.revision = takes, 30
			}
			return hold, page
		}
		v := runFeed(t, u, takes+time.Second).view.Load()
		if age := time.Since(v.currentAt.Sent); v.To != 9 || age < takes {
			t.Errorf("it was asked for %v ago, is at revision %d of 30, and counts as %v old", takes+time.Second, v.To, age)
		}
	})
}

// TestLoadsThatTrickle: a load that trickles holds up another for loadSlotTimeout at most, and ends. It is not soon
// tried again.
func TestLoadsThatTrickle(t *testing.T) {
	for name, slowly := range map[string]interceptor{
		"streaming lists": func(r *http.Request, kind string) (time.Duration, *http.Response) {
			if kind != "load" {
				return 0, nil
			}
			return 0, (&upstream{}).lastingResponse(r, "", bookmark(5, ""), loadSilence/2)
		},
		"pages": func(r *http.Request, kind string) (time.Duration, *http.Response) {
			endless := (&upstream{}).list(9, `,"continue":"x"`)
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
			u.intercept = func(r *http.Request, kind string) (time.Duration, *http.Response) {
				if !strings.HasPrefix(r.URL.Path, "/apis/slow") {
					return 0, nil
				}
				if kind == "load" {
					loads++
				}
				return slowly(r, kind)
			}
			all := newCollections(t, u)
			var slow []*Collection
			for i := range maxLoads {
				r := configMaps
				r.Group = fmt.Sprint("slow", i)
				collection, _ := all.Use(r)
				slow = append(slow, collection)
			}
			synctest.Wait()
			quick, _ := all.Keep(configMaps)
			time.Sleep(loadSlotTimeout - time.Second)
			if why := quick.AwaitLoad(t.Context(), 0, false); why != reason.Warming {
				t.Errorf("another resource, while %d are loading: %q, want %q", maxLoads, why, reason.Warming)
			}
			time.Sleep(2 * time.Second)
			if why := quick.AwaitLoad(t.Context(), 0, false); why != reason.None {
				t.Errorf("another resource, once loads have given up their slots: %q, want it", why)
			}
			time.Sleep(loadTimeout)
			for _, collection := range slow {
				if err := collection.LoadError(); !errors.Is(err, errSlow) {
					t.Errorf("after %v the load's error is %v, want %v", loadTimeout, err, errSlow)
				}
			}
			time.Sleep(unlikelyRetry - 2*loadSlotTimeout)
			synctest.Wait()
			if loads != maxLoads {
				t.Errorf("loaded again %d times within %v", loads-maxLoads, unlikelyRetry)
			}
		})
	}
}
