package snapshot

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestNewestOfAQuietResource: where only other resources are written, only the bookmark of a short watch proves the
// newest state. Where nothing is written, the probe alone does. Nobody waits longer than asked.
func TestNewestOfAQuietResource(t *testing.T) {
	for name, tt := range map[string]struct {
		shortWatchRepeats string
		probes            interceptor // once the state is known
		quiet             bool        // nothing else is written
		want              reason.Reason
		wantLoads         int // 1 if it is not said
	}{
		"nothing is written":             {quiet: true},
		"a bookmark":                     {shortWatchRepeats: bookmark(30, "")},
		"a bookmark that is not far yet": {shortWatchRepeats: bookmark(29, ""), want: reason.NotProven},
		"nothing":                        {want: reason.NotProven},
		"a change that the stream lacks": {
			shortWatchRepeats: itemEvent("MODIFIED", itemBAt(20)) + bookmark(30, ""), want: reason.NotProven,
		},
		"a revision that goes back": {shortWatchRepeats: bookmark(8, ""), want: reason.Warming, wantLoads: 2},
		"an error":                  {shortWatchRepeats: errorEvent(http.StatusGone), want: reason.NotProven},
		"a probe is refused":        {probes: refuseKind(kindProbe, http.StatusTooManyRequests), want: reason.NotProven},
		"a probe fails":             {probes: refuseKind(kindProbe, http.StatusInternalServerError), want: reason.NotProven},
		"a probe is not answered": {
			probes: fault{kind: kindProbe, duration: time.Minute, delay: time.Hour}.intercept(), want: reason.NotProven,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			const wait = 1500 * time.Millisecond
			u := &upstream{revision: 9, shortWatchRepeats: new(tt.shortWatchRepeats)}
			c := runFeed(t, u, time.Second)
			u.mu.Lock()
			u.intercept = tt.probes
			if !tt.quiet {
				u.revision = 30
			}
			at := u.revision
			u.mu.Unlock()
			begun := time.Now()
			snap, why := c.Consistent(t.Context(), c.probes.Last(), wait)
			if took := time.Since(begun); why != tt.want || (why == reason.NotProven) != (took == wait) {
				t.Errorf("%q after %v, want %q", why, took, tt.want)
			}
			if why == reason.None && (snap.Revision != at || snap.CurrentAt.Before(begun)) {
				t.Errorf("at revision %d, currentAt %v before", snap.Revision, begun.Sub(snap.CurrentAt))
			}
			time.Sleep(10 * time.Second)
			u.mu.Lock()
			defer u.mu.Unlock()
			if want := max(1, tt.wantLoads); u.loads != want || tt.probes == nil && (u.shortWatches == 0) != tt.quiet {
				t.Errorf("loaded %d times, want %d; %d short watches", u.loads, want, u.shortWatches)
			}
		})
	}
}

// TestNewestIsAskedForTogether: a probe serves all lists that came before it was sent; later ones wait for the next.
func TestNewestIsAskedForTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, clients = 100 * time.Millisecond, 1000
		slowProbes := fault{kind: kindProbe, begins: time.Second, duration: time.Minute, delay: takes}
		u := &upstream{revision: 9, intercept: slowProbes.intercept()}
		c := runFeed(t, u, time.Second)
		before := u.probes
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Second / clients)
				came := time.Now()
				snap, why := c.Consistent(t.Context(), c.probes.Last(), 3*takes)
				if took := time.Since(came); why != reason.None || snap.CurrentAt.Before(came) || took > 2*takes {
					t.Errorf("%q after %v", why, took)
				}
			})
		}
		all.Wait()
		synctest.Wait()
		if asked, most := u.probes-before, int(time.Second/takes)+2; asked > most || asked < most-3 {
			t.Errorf("%d probes, want %d at most", asked, most)
		}
	})
}

// TestFewWaitInVain: where no proof can come for a time, few lists of the newest state wait for one, and the
// upstream is asked ever less often. Where one can come, they are answered.
func TestFewWaitInVain(t *testing.T) {
	same := itemEvent("MODIFIED", itemB) // the same timeline
	refuseShortWatches := func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
		if kind != kindShortWatch {
			return 0, nil
		}
		return 0, busyResponse(r, http.StatusTooManyRequests, "20")
	}
	for name, tt := range map[string]struct {
		upstream     *upstream
		every, lasts time.Duration // how often lists come, and for how long
		writes       bool          // another resource is written before each list
		wantProven   bool          // some lists are answered
		// At most so many lists wait in vain, and the feed sends at most so many requests.
		mostInVain, mostShortWatches, mostProbes, mostLoads int
	}{
		"streams end at once": {
			upstream: &upstream{watch: func(_ int, from uint64) []string {
				if from < 7 {
					return []string{same, errorEvent(http.StatusInternalServerError)}
				}
				return []string{errorEvent(http.StatusInternalServerError)}
			}},
			every: 300 * time.Millisecond, lasts: 30 * time.Second,
			wantProven: true, mostInVain: 3, mostProbes: 100, mostLoads: 5,
		},
		"short watches are refused, for 20 s": {
			upstream: &upstream{shortWatchRepeats: new(""), intercept: refuseShortWatches},
			writes:   true, every: time.Second, lasts: 20 * time.Second,
			mostInVain: 2, mostProbes: 100, mostLoads: 1,
		},
		// As without a watch cache. A question comes before each stream. One that is silent is left, and the state
		// loaded anew, every two minutes at most, since nothing shows that the timeline is the same.
		"short watches without a bookmark, for hours": {
			upstream: &upstream{shortWatchRepeats: new("")},
			writes:   true, every: 10 * time.Second, lasts: 3 * time.Hour,
			mostInVain: 5, mostShortWatches: 12, mostProbes: 24 + 500, mostLoads: 60,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			u := tt.upstream
			u.revision = 9
			c := runFeed(t, u, time.Second)
			inVain, proven := 0, 0
			for begun := time.Now(); time.Since(begun) < tt.lasts; time.Sleep(tt.every) {
				if tt.writes {
					u.mu.Lock()
					u.revision++
					u.mu.Unlock()
				}
				if c.ConsistentUnavailable(index.Query{}, c.probes.Last(), 1500*time.Millisecond) != reason.None {
					continue
				}
				if _, why := c.Consistent(t.Context(), c.probes.Last(), 1500*time.Millisecond); why == reason.None {
					proven++
				} else {
					inVain++
				}
			}
			u.mu.Lock()
			defer u.mu.Unlock()
			if inVain > tt.mostInVain || (proven > 0) != tt.wantProven {
				t.Errorf("%d lists waited in vain, want at most %d; %d were answered, want some: %t",
					inVain, tt.mostInVain, proven, tt.wantProven)
			}
			if u.shortWatches > tt.mostShortWatches || u.probes > tt.mostProbes || u.loads > tt.mostLoads {
				t.Errorf("%d short watches, %d probes, %d loads; want at most %d, %d, %d",
					u.shortWatches, u.probes, u.loads, tt.mostShortWatches, tt.mostProbes, tt.mostLoads)
			}
			if got := c.stats().Unavailable; tt.lasts > time.Hour && got != reason.NotProven {
				t.Errorf("without bookmarks the collection is unavailable for %q, want %q", got, reason.NotProven)
			}
		})
	}
}

// TestNoFresh: nobody waits for a proof that cannot come.
func TestNoFresh(t *testing.T) {
	c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
	last := c.probes.Last()
	expectWhy := func(name string, q index.Query, after uint64, want reason.Reason) {
		t.Helper()
		if got := c.ConsistentUnavailable(q, after, time.Second); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	expectWhy("a list", index.Query{}, last, reason.None)
	unknown := index.Query{Fields: fields.OneTermEqualSelector("spec.unknown", "x")}
	expectWhy("by a field that memory does not know", unknown, last, reason.NotCanonical)
	expectWhy("by such a field, and proven", unknown, last-1, reason.NotCanonical)
	if got, _ := c.view.Load().consistent(0); got.Envelope != nil {
		t.Error("one of which nobody knows when it came is answered")
	}
	var f source.Freshness
	f.StreamOpened(time.Now())
	f.Refused(time.Now(), time.Minute)
	c.publishForecast(f)
	expectWhy("where the upstream wants no question", index.Query{}, last, reason.NotProven)
	expectWhy("one that came before the last proof's probe", index.Query{}, last-1, reason.None)
	c.drop(reason.Upstream)
	expectWhy("without a state", index.Query{}, last, reason.Upstream)
}

// TestForwardSmall: small lists and rests of lists are forwarded, a few at a time, unless memory has them already.
func TestForwardSmall(t *testing.T) {
	c, state := liveCollection(Limits{History: time.Hour, Staleness: time.Hour}), index.NewTree(false)
	for i := range 1000 {
		state.Set(index.NewObject(uint64(i), fmt.Sprintf("n/%04d", i), 1, bytes.Repeat([]byte("x"), 1000)))
	}
	c.load(state, 10)
	last := c.probes.Last()
	for name, tt := range map[string]struct {
		query         index.Query
		after         uint64 // the last probe that was sent before the request came
		wantForwarded bool
	}{
		"all":             {query: index.Query{}, after: last},
		"a page":          {query: index.Query{Limit: 100}, after: last, wantForwarded: true},
		"a large page":    {query: index.Query{Limit: 500}, after: last},
		"of no namespace": {query: index.Query{Scope: index.Scope{Namespace: "m"}}, after: last, wantForwarded: true},
		"one object":      {query: index.Query{Name: "0001"}, after: last, wantForwarded: true},
		"by a label": {
			query: index.Query{Labels: labels.SelectorFromSet(labels.Set{"app": "x"})}, after: last, wantForwarded: true,
		},
		"a page, proven":    {query: index.Query{Limit: 100}, after: last - 1},
		"the end of a list": {query: index.Query{Start: "n/0900"}, after: last, wantForwarded: true},
	} {
		over, forward := c.ForwardSmall(tt.query, tt.after)
		if forward != tt.wantForwarded {
			t.Errorf("%s: forwarded %t, want %t", name, forward, tt.wantForwarded)
		}
		if forward {
			over()
		}
	}
	var overs []func()
	for range 300 {
		if over, forward := c.ForwardSmall(index.Query{Limit: 1}, last); forward {
			overs = append(overs, over)
		}
	}
	if len(overs) != maxSmallForwarded {
		t.Errorf("%d of 300 small lists at once are forwarded, want %d", len(overs), maxSmallForwarded)
	}
	overs[0]()
	if _, forward := c.ForwardRest(index.Query{Limit: 1, Start: "n/0001"}, 10); forward {
		t.Error("the rest of a list is forwarded though memory has reached its revision")
	}
	if _, forward := c.ForwardRest(index.Query{Start: "n/0001"}, 11); forward {
		t.Error("the rest of a list is forwarded though it is large")
	}
	over, forward := c.ForwardRest(index.Query{Limit: 1, Start: "n/0001"}, 11)
	if !forward || len(c.probeRequests) != 1 {
		t.Error("the rest of a list that memory has not reached is not forwarded, or no probe is requested")
	}
	over()
	if _, forward := c.ForwardSmall(index.Query{Limit: 1}, last); !forward {
		t.Error("when one is over, no other is forwarded")
	}
	c.drop(reason.Upstream)
	if _, forward := c.ForwardSmall(index.Query{Limit: 1}, last); forward {
		t.Error("without a state")
	}
}

// TestAccept: the interval is extended to the bookmark of a short watch only if it has all changes that the watch told.
func TestAccept(t *testing.T) {
	for name, tt := range map[string]struct {
		streamed  []uint64 // changes that the stream has told
		progress  progress // what the short watch has told
		wantTo    uint64   // the end of the interval
		wantWaits bool     // until the stream has caught up
		wantError bool
	}{
		"no change": {progress: progress{from: 10, revision: 20}, wantTo: 20},
		"a change that is there": {
			streamed: []uint64{15}, progress: progress{from: 10, revision: 20, changes: []uint64{15}}, wantTo: 20,
		},
		"a change that is not there": {
			streamed: []uint64{15}, progress: progress{from: 10, revision: 20, changes: []uint64{15, 16}},
			wantTo: 15, wantWaits: true,
		},
		"the stream is further": {streamed: []uint64{25}, progress: progress{from: 10, revision: 20}, wantTo: 25},
		"a change that was passed over": {
			streamed: []uint64{18}, progress: progress{from: 10, revision: 20, changes: []uint64{15, 18}},
			wantTo: 18, wantError: true,
		},
		"nothing was told":     {wantTo: 10},
		"from another server":  {progress: progress{from: 7, revision: 9}, wantTo: 10},
		"from before the load": {progress: progress{from: 7, revision: 20, changes: []uint64{9}}, wantTo: 20},
	} {
		t.Run(name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
			for _, revision := range tt.streamed {
				o := &index.Object{Key: "ns/a", Revision: revision}
				expect.NoError(t, c.apply(stateChange{kind: wire.Modified, key: o.Key, revision: revision, object: o}))
			}
			left, err := c.applyProgress(tt.progress)
			if (err != nil) != tt.wantError || err == nil && (left.revision > 0) != tt.wantWaits {
				t.Errorf("%+v is left, %v; want some left: %t, an error: %t", left, err, tt.wantWaits, tt.wantError)
			}
			if to := c.view.Load().To; to != tt.wantTo {
				t.Errorf("the interval ends at %d, want %d", to, tt.wantTo)
			}
		})
	}
	c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
	c.drop(reason.Warming)
	if left, err := c.applyProgress(progress{from: 10, revision: 20}); err != nil || left.revision > 0 {
		t.Errorf("without a state: %+v, %v", left, err)
	}
}

// TestNewestWaitsForALoadBeside: while the state is loaded anew beside the known one, who wants the newest
// state waits for it, for a time; who takes any state does not.
func TestNewestWaitsForALoadBeside(t *testing.T) {
	for name, endLoad := range map[string]func(*Collection){
		"loaded":     func(c *Collection) { c.load(index.NewTree(false), 20) },
		"not loaded": func(c *Collection) { c.setReloadingSince(time.Time{}) },
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Minute, Staleness: time.Hour})
			c.setReloadingSince(time.Now())
			time.Sleep(2 * time.Second)
			expect.Same(t, time.Duration(0), c.LoadTimeLeft(10*time.Second, false)) // any state
			expect.Same(t, 8*time.Second, c.LoadTimeLeft(10*time.Second, true))     // the newest
			time.AfterFunc(time.Second, func() { endLoad(c) })
			asked := time.Now()
			if why := c.AwaitLoad(t.Context(), 8*time.Second, false); why != reason.None || time.Since(asked) != 0 {
				t.Errorf("any state: %q after %v", why, time.Since(asked))
			}
			if why := c.AwaitLoad(t.Context(), 8*time.Second, true); why != reason.None || time.Since(asked) != time.Second {
				t.Errorf("the newest state: %q after %v", why, time.Since(asked))
			}
			c.retire(reason.Memory)
			asked = time.Now()
			if why := c.AwaitLoad(t.Context(), 8*time.Second, true); why != reason.Memory || time.Since(asked) != 0 {
				t.Errorf("a state that will not come: %q after %v", why, time.Since(asked))
			}
		})
	}
}

// TestSuspended: a state is as old as either clock says. The monotonic one stands still while the machine
// is suspended, and the wall clock can be set back.
func TestSuspended(t *testing.T) {
	const bound = 6 * time.Second
	now := time.Now()
	for name, tt := range map[string]struct {
		ago                   time.Duration // by the monotonic clock
		furtherByTheWallClock time.Duration
		want                  reason.Reason
	}{
		"before the machine was suspended for an hour": {
			ago: time.Second, furtherByTheWallClock: time.Hour, want: reason.Stale,
		},
		"long ago, before the clock was set back an hour": {
			ago: time.Minute, furtherByTheWallClock: -time.Hour, want: reason.Stale,
		},
		"just now, before the clock was set back an hour": {
			ago: time.Second, furtherByTheWallClock: -time.Hour, want: reason.None,
		},
	} {
		sent := proxytest.EarlierByTheWallClock(now.Add(-tt.ago), tt.furtherByTheWallClock)
		v := &View{unavailable: reason.None, currentAt: source.Probe{Sent: sent}}
		if _, got := v.latest(moment{now: now, bound: bound}, 0); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
