package snapshot

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestAnotherTimelineIsLoaded: after a balancer has refused a probe, another API server may answer. So a feed opens its stream
// again from before the newest change, which is of b at 8. The feed keeps its state only if the stream sends that change with
// the same bytes, and no other change up to 9.
func TestAnotherTimelineIsLoaded(t *testing.T) {
	change, later := itemEvent("MODIFIED", itemBAt(8)), itemEvent("MODIFIED", itemBAt(12))
	otherBytes := strings.Replace(change, `"namespace":"n",`, `"namespace":"n","uid":"u",`, 1)
	otherObject := strings.Replace(change, `"b"`, `"c"`, 1)
	for name, tt := range map[string]struct {
		replay     []string // the lines of the stream
		wantReload bool
	}{
		"the same change":                       {replay: []string{change, bookmark(9, "")}},
		"the same change, and a later one":      {replay: []string{change, later, bookmark(12, "")}},
		"the same change, a later one, and cut": {replay: []string{change, later, cut}},
		"the same object with other bytes":      {replay: []string{otherBytes, bookmark(9, "")}, wantReload: true},
		"another object":                        {replay: []string{otherObject, bookmark(9, "")}, wantReload: true},
		"a deletion":                            {replay: []string{itemEvent("DELETED", itemBAt(8)), bookmark(9, "")}, wantReload: true},
		"the same change, and one up to 9": {
			replay: []string{change, itemEvent("MODIFIED", itemBAt(9)), bookmark(9, "")}, wantReload: true,
		},
		"the change at another revision": {replay: []string{itemEvent("MODIFIED", itemBAt(9)), bookmark(9, "")}, wantReload: true},
		"no change":                      {replay: []string{bookmark(9, "")}, wantReload: true},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			u := &upstream{revision: 7, changes: true, repeats: bookmark(9, ""), replay: tt.replay}
			u.intercept = fault{
				kind: kindProbe, begins: time.Second, duration: 59 * time.Second,
				answer: respond(http.StatusServiceUnavailable, "no server is available"),
			}.intercept()
			runFeed(t, u, 2*time.Minute)
			if reloaded := u.loads > 1; reloaded != tt.wantReload {
				t.Errorf("the state was loaded anew: got %t, want %t", reloaded, tt.wantReload)
			}
			const wantWatches = 3 // the load's, the one that replays, and the stream
			if !tt.wantReload && u.watches != wantWatches {
				t.Errorf("got %d watches, want %d", u.watches, wantWatches)
			}
		})
	}
}

// TestSameServersSameTimeline: when the stream of a feed ends without a change since the load, the feed calls
// Config.SameTimeline. If an API server that ran before still runs, the feed keeps the state and the history, else it loads
// the state anew. An answer may take until the server has renewed its Lease, so the feed asks a few times.
func TestSameServersSameTimeline(t *testing.T) {
	const never = 100 // more calls than there are
	for name, tt := range map[string]struct {
		unprovenCalls int  // how many calls return false before one returns true
		soon          bool // these calls return that it may be known soon
		wantLoads     int
	}{
		"the servers are the same":                   {wantLoads: 1},
		"the servers are shown later to be the same": {unprovenCalls: leasePauses, soon: true, wantLoads: 1},
		"the servers are never shown to be the same": {unprovenCalls: never, soon: true, wantLoads: 2},
		"nothing will be known of the servers":       {unprovenCalls: never, wantLoads: 2},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			calls := 0
			u := &upstream{revision: 9, watch: firstWatchSends(bookmark(9, ""), cut)}
			c, _ := newCollections(t, u, func(c *Config) {
				c.SameTimeline = func(_ context.Context, revision uint64, currentAt time.Time) (same, soon bool) {
					if age := time.Since(currentAt); revision != 9 || age > time.Minute {
						t.Errorf("SameTimeline: got revision %d, current %v ago; want 9, at most a minute ago", revision, age)
					}
					calls++
					return calls > tt.unprovenCalls, tt.soon
				}
			}).Use(configMaps)
			time.Sleep(time.Minute)
			synctest.Wait()
			if u.loads != tt.wantLoads {
				t.Errorf("got %d loads, want %d", u.loads, tt.wantLoads)
			}
			if most := leasePauses + 1; calls > most {
				t.Errorf("got %d calls of SameTimeline, want at most %d", calls, most)
			}
			if _, unavailable := c.Exact(t.Context(), 9); unavailable != reason.None {
				t.Errorf("the state at 9: got reason %q, want the state", unavailable)
			}
		})
	}
}
