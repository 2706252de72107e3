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

// TestPendingProbesAreBounded: however long a stream lags, few probes are kept, and these make the state as new as they
// can.
func TestPendingProbesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = time.Minute
		c := liveCollection(Limits{History: time.Hour, Staleness: bound})
		for rev := uint64(11); rev < 2000; rev++ {
			time.Sleep(bound / 1000)
			c.expect(probeResult{rev, c.at(time.Now())})
			if n := len(c.pendingProbes); n > maxPendingProbes {
				t.Fatalf("%d pending probes, want at most %d", n, maxPendingProbes)
			}
		}
		expect.NoError(t, c.progress(1999))
		if old := time.Since(c.view.Load().currentAt.Sent); old > bound/20 || len(c.pendingProbes) > 1 {
			t.Errorf("the state is %v old, and of the pendingProbes that were reached there are left: %v", old, c.pendingProbes)
		}
	})
}

// TestALongLoadIsNotNew: a state is as new as the moment at which it was asked for, until its watch has come to
// where the upstream is.
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

// TestLoadsThatTrickle: a load that trickles holds up another for loadSlotTimeout at most, and ends. Its state is asked
// for again, but not soon.
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
				t.Errorf("another resource, while %d are loading: %q", maxLoads, why)
			}
			time.Sleep(2 * time.Second)
			if why := quick.AwaitLoad(t.Context(), 0, false); why != reason.None {
				t.Errorf("another resource: %q", why)
			}
			time.Sleep(loadTimeout)
			for _, collection := range slow {
				if err := collection.LoadError(); !errors.Is(err, errSlow) {
					t.Errorf("after %v: %v", loadTimeout, err)
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
