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

// A timeline is one history of etcd. A restored backup begins another one, which may have other objects at the same revisions.
// So after a break of its stream, a feed needs a proof that the upstream still has the timeline of the known state.

// TestAnotherTimelineIsLoaded: after a break, a feed lets the upstream repeat its last changes, with a short watch from before
// the newest change that it knows. It keeps its state only if the watch sends the known changes with the same bytes, and no
// others. If not, it loads the state anew.
//
// Here, the break is a load balancer's answer to a probe: no API server runs, so etcd may have been restored meanwhile. The
// feed's newest change is of b at changedAt, and its state is at stateAt.
func TestAnotherTimelineIsLoaded(t *testing.T) {
	const (
		changedAt = loadedAt + 1
		stateAt   = loadedAt + 2
		laterAt   = loadedAt + 5 // the feed does not know of this change
	)
	change := event("MODIFIED", "b", changedAt)
	later := event("MODIFIED", "b", laterAt)
	changeWithOtherBytes := strings.Replace(change, `"namespace":"n",`, `"namespace":"n","uid":"u",`, 1)
	changeOfOtherObject := strings.Replace(change, `"b"`, `"c"`, 1)
	changeAtStateAt := strings.Replace(change, fmt.Sprint(changedAt), fmt.Sprint(stateAt), 1)
	end := bookmark(stateAt)
	for name, tt := range map[string]struct {
		repeated   string // the lines of the short watch; "": the API server answers
		wantReload bool
	}{
		"the same change":                                {},
		"the same change, and a later one":               {repeated: change + later + bookmark(laterAt)},
		"the same change, a later one, and no bookmark":  {repeated: change + later},
		"the same change with other bytes":               {repeated: changeWithOtherBytes + end, wantReload: true},
		"a change of another object":                     {repeated: changeOfOtherObject + end, wantReload: true},
		"a deletion instead of the change":               {repeated: event("DELETED", "b", changedAt) + end, wantReload: true},
		"the same change, and an unknown one at stateAt": {repeated: change + event("MODIFIED", "b", stateAt) + end, wantReload: true},
		"the change at another revision":                 {repeated: changeAtStateAt + end, wantReload: true},
		"no change":                                      {repeated: end, wantReload: true},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			// The stream sends the change of b, and a bookmark at stateAt.
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

			// The break lasts for a minute.
			refusedProbes := fault{
				kind: kindProbe, duration: time.Minute, answer: respond(http.StatusServiceUnavailable, "no server is available"),
			}.intercept()
			p.intercept(func(p *plane, r *http.Request) (time.Duration, *http.Response) {
				if kindOf(r) == kindShortWatch && tt.repeated != "" {
					return 0, respond(http.StatusOK, tt.repeated)(r)
				}
				return refusedProbes(p, r)
			})
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if reloaded := p.count(kindStreamingList) > 1; reloaded != tt.wantReload {
				t.Errorf("the state was loaded anew: got %t, want %t", reloaded, tt.wantReload)
			}
			const wantWatches = 3 // the streaming list of the load, the short watch, and the next stream
			if n := p.count(kindStreamingList, kindWatch, kindShortWatch); !tt.wantReload && n != wantWatches {
				t.Errorf("got %d watches, want %d", n, wantWatches)
			}
		})
	}
}

// TestSameServersSameTimeline: if a feed's stream ends, and there was no change since the load, the upstream cannot repeat one.
// So the feed calls Config.SameTimeline, which looks at the Leases of the API servers. If a server that ran before the break
// still runs, the feed keeps the state and the history. If not, it loads the state anew. A server may have to renew its Lease
// first, so the feed calls SameTimeline up to leasePauses times more.
func TestSameServersSameTimeline(t *testing.T) {
	const never = 100 // more calls than a feed makes
	for name, tt := range map[string]struct {
		unprovenCalls int  // the number of calls that return false before one returns true
		proofMayCome  bool // these calls also return that a Lease may come soon
		wantLoads     int
	}{
		"a server still runs":                                 {wantLoads: 1},
		"a server still runs, which its next Lease shows":     {unprovenCalls: leasePauses, proofMayCome: true, wantLoads: 1},
		"a next Lease is expected, and does not come":         {unprovenCalls: never, proofMayCome: true, wantLoads: 2},
		"no server still runs, and no next Lease is expected": {unprovenCalls: never, wantLoads: 2},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			calls := 0
			p := newPlane(t, "a", "b")
			c, _ := newCollections(t, p, func(c *Config) {
				c.SameTimeline = func(_ context.Context, revision uint64, currentAt time.Time) (same, proofMayCome bool) {
					if age := time.Since(currentAt); revision != loadedAt || age > time.Minute {
						t.Errorf("SameTimeline: got revision %d, current %v ago; want %d, at most a minute ago", revision, age, loadedAt)
					}
					calls++
					return calls > tt.unprovenCalls, tt.proofMayCome
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
