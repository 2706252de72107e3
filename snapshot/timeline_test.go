package snapshot

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestAnotherTimelineIsLoaded: after a balancer has refused a probe, another API server may answer. So a feed opens a short watch
// from before the newest change, which is of b at changedAt. The feed keeps its state, which is at stateAt, only if the watch
// sends that change with the same bytes, and no other change up to stateAt.
func TestAnotherTimelineIsLoaded(t *testing.T) {
	const changedAt, stateAt = loadedAt + 1, loadedAt + 2
	change, later := event("MODIFIED", "b", changedAt), event("MODIFIED", "b", stateAt+3)
	otherBytes := strings.Replace(change, `"namespace":"n",`, `"namespace":"n","uid":"u",`, 1)
	otherObject := strings.Replace(change, `"b"`, `"c"`, 1)
	otherRevision := strings.Replace(change, fmt.Sprint(changedAt), fmt.Sprint(stateAt), 1)
	end := bookmark(stateAt)
	for name, tt := range map[string]struct {
		replay     string // the lines of the short watch; "": the API server answers
		wantReload bool
	}{
		"the same change":                       {},
		"the same change, and a later one":      {replay: change + later + bookmark(stateAt+3)},
		"the same change, a later one, and cut": {replay: change + later},
		"the same object with other bytes":      {replay: otherBytes + end, wantReload: true},
		"another object":                        {replay: otherObject + end, wantReload: true},
		"a deletion":                            {replay: event("DELETED", "b", changedAt) + end, wantReload: true},
		"the same change, and one up to stateAt": {
			replay: change + event("MODIFIED", "b", stateAt) + end, wantReload: true,
		},
		"the change at another revision": {replay: otherRevision + end, wantReload: true},
		"no change":                      {replay: end, wantReload: true},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			p := newPlane(t, "a", "b")
			c := runFeed(t, p, justLoaded)
			p.write("b")
			synctest.Wait()
			p.writeElsewhere()
			p.Send(inmemory.Widgets.Path, bookmark(stateAt))
			synctest.Wait()
			if to := c.view.Load().To; to != stateAt {
				t.Fatalf("the state is at revision %d, want %d", to, stateAt)
			}
			refusedProbes := fault{
				kind: kindProbe, duration: time.Minute, answer: respond(http.StatusServiceUnavailable, "no server is available"),
			}.intercept()
			p.intercept(func(p *plane, r *http.Request) (time.Duration, *http.Response) {
				if kindOf(r) == kindShortWatch && tt.replay != "" {
					return 0, respond(http.StatusOK, tt.replay)(r)
				}
				return refusedProbes(p, r)
			})
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if reloaded := p.count(kindStreamingList) > 1; reloaded != tt.wantReload {
				t.Errorf("the state was loaded anew: got %t, want %t", reloaded, tt.wantReload)
			}
			const wantWatches = 3 // the load's, the one that replays, and the stream
			if n := p.count(kindStreamingList, kindWatch, kindShortWatch); !tt.wantReload && n != wantWatches {
				t.Errorf("got %d watches, want %d", n, wantWatches)
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
			p := newPlane(t, "a", "b")
			c, _ := newCollections(t, p, func(c *Config) {
				c.SameTimeline = func(_ context.Context, revision uint64, currentAt time.Time) (same, soon bool) {
					if age := time.Since(currentAt); revision != loadedAt || age > time.Minute {
						t.Errorf("SameTimeline: got revision %d, current %v ago; want %d, at most a minute ago", revision, age, loadedAt)
					}
					calls++
					return calls > tt.unprovenCalls, tt.soon
				}
			}).Use(widgets)
			synctest.Wait()
			p.End(inmemory.Widgets.Path)
			time.Sleep(time.Minute)
			synctest.Wait()
			if loads := p.count(kindStreamingList); loads != tt.wantLoads {
				t.Errorf("got %d loads, want %d", loads, tt.wantLoads)
			}
			if most := leasePauses + 1; calls > most {
				t.Errorf("got %d calls of SameTimeline, want at most %d", calls, most)
			}
			if _, unavailable := c.Exact(t.Context(), loadedAt); unavailable != reason.None {
				t.Errorf("the loaded state: got reason %q, want the state", unavailable)
			}
		})
	}
}
