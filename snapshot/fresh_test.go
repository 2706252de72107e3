package snapshot

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// consistentWait is the longest time for which a list of the newest state waits for its proof.
const consistentWait = 1500 * time.Millisecond

// afterProbes returns two arguments for the parameter afterProbe of [Collection.Consistent]: with waiting, a list must still
// wait for a proof; with proven, the state is proven already.
func afterProbes(c *Collection) (waiting, proven uint64) {
	last := c.shared.probes.Last()
	return last, last - 1
}

// TestConsistentOfAQuietResource: while nothing is written, Consistent returns the state of a resource once a probe has proven
// it. While only other resources are written, the proof also needs the bookmark of a short watch. A list that gets no proof
// waits for consistentWait.
func TestConsistentOfAQuietResource(t *testing.T) {
	const stateRevision = 9
	const upstreamRevision = 30 // after other resources were written
	for name, tt := range map[string]struct {
		nothingWritten    bool        // also no other resource
		shortWatchRepeats string      // the line that a short watch sends every second; "": none
		probes            interceptor // how probes are answered once the state is known; nil: as usual
		wantUnavailable   reason.Reason
		wantShortWatch    bool
		wantReload        bool
	}{
		"nothing is written": {nothingWritten: true},
		"a short watch has a bookmark": {
			shortWatchRepeats: bookmark(upstreamRevision, ""), wantShortWatch: true,
		},
		"the bookmark is below the upstream's revision": {
			shortWatchRepeats: bookmark(upstreamRevision-1, ""), wantUnavailable: reason.NotProven, wantShortWatch: true,
		},
		"a short watch has nothing": {wantUnavailable: reason.NotProven, wantShortWatch: true},
		"a short watch has a change that the stream lacks": {
			shortWatchRepeats: itemEvent("MODIFIED", itemBAt(upstreamRevision-1)) + bookmark(upstreamRevision, ""),
			wantUnavailable:   reason.NotProven, wantShortWatch: true,
		},
		"the bookmark is below the state's revision": {
			shortWatchRepeats: bookmark(stateRevision-1, ""),
			wantUnavailable:   reason.Warming, wantShortWatch: true, wantReload: true,
		},
		"a short watch has an error": {
			shortWatchRepeats: errorEvent(http.StatusGone), wantUnavailable: reason.NotProven, wantShortWatch: true,
		},
		"probes are answered 429": {
			probes: refuseKind(kindProbe, http.StatusTooManyRequests), wantUnavailable: reason.NotProven,
		},
		"probes are answered 500": {
			probes: refuseKind(kindProbe, http.StatusInternalServerError), wantUnavailable: reason.NotProven,
		},
		"probes are not answered": {
			probes: fault{kind: kindProbe, delay: time.Hour}.intercept(), wantUnavailable: reason.NotProven,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			u := &upstream{revision: stateRevision, shortWatchRepeats: new(tt.shortWatchRepeats)}
			c := runFeed(t, u, time.Second)
			u.mu.Lock()
			u.intercept = tt.probes
			if !tt.nothingWritten {
				u.revision = upstreamRevision
			}
			wantRevision := u.revision
			u.mu.Unlock()
			begun := time.Now()
			snap, unavailable := c.Consistent(t.Context(), c.shared.probes.Last(), consistentWait)
			if unavailable != tt.wantUnavailable {
				t.Errorf("got reason %q, want %q", unavailable, tt.wantUnavailable)
			}
			waitedInVain := time.Since(begun) == consistentWait
			if want := tt.wantUnavailable == reason.NotProven; waitedInVain != want {
				t.Errorf("waited for the whole time: got %t, want %t", waitedInVain, want)
			}
			if unavailable == reason.None {
				expect.Same(t, wantRevision, snap.Revision)
				expectCurrentSince(t, begun, snap)
			}
			time.Sleep(10 * time.Second) // by now, a reload has ended
			u.mu.Lock()
			defer u.mu.Unlock()
			if reloaded := u.loads > 1; reloaded != tt.wantReload {
				t.Errorf("the state was loaded anew: got %t, want %t", reloaded, tt.wantReload)
			}
			if opened := u.shortWatches > 0; opened != tt.wantShortWatch {
				t.Errorf("a short watch was opened: got %t, want %t", opened, tt.wantShortWatch)
			}
		})
	}
}

// expectCurrentSince checks that a state has everything that was written before a list came.
func expectCurrentSince(t *testing.T, came time.Time, snap Snapshot) {
	t.Helper()
	if snap.CurrentAt.Before(came) {
		t.Errorf("the state is current as of %v before the list came, want a time after it", came.Sub(snap.CurrentAt))
	}
}

// TestListsShareProbes: one probe serves all lists of the newest state that came before it was sent. Later lists wait for the
// next probe.
func TestListsShareProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const probeTime, clients = 100 * time.Millisecond, 1000
		slowProbes := fault{kind: kindProbe, begins: time.Second, delay: probeTime}
		u := &upstream{revision: 9, intercept: slowProbes.intercept()}
		c := runFeed(t, u, time.Second)
		u.mu.Lock()
		before := u.probes
		u.mu.Unlock()
		var lists sync.WaitGroup
		for i := range clients {
			lists.Go(func() {
				time.Sleep(time.Duration(i) * time.Second / clients) // so that all clients come within a second
				came := time.Now()
				snap, unavailable := c.Consistent(t.Context(), c.shared.probes.Last(), 3*probeTime)
				if unavailable != reason.None {
					t.Errorf("got reason %q, want a state", unavailable)
					return
				}
				expectCurrentSince(t, came, snap)
				const maxTook = 2 * probeTime // the rest of a probe that was sent before the list came, and the next probe
				if took := time.Since(came); took > maxTook {
					t.Errorf("waited for %v, want at most %v", took, maxTook)
				}
			})
		}
		lists.Wait()
		synctest.Wait()
		u.mu.Lock()
		defer u.mu.Unlock()
		const least, most = int(time.Second/probeTime) - 1, int(time.Second/probeTime) + 2
		if got := u.probes - before; got < least || got > most {
			t.Errorf("got %d probes for %d lists, want %d to %d", got, clients, least, most)
		}
	})
}

// TestFewWaitInVain: while no proof can come, WhyNotConsistent lets few lists wait for Consistent in vain, and the feed
// asks the upstream ever less often. While proofs come at times, some lists are answered.
func TestFewWaitInVain(t *testing.T) {
	const withoutBookmarks = 3 * time.Hour
	newestChange := itemEvent("MODIFIED", itemB) // b at 7
	for name, tt := range map[string]struct {
		upstream        *upstream
		interval        time.Duration // the time between two lists
		duration        time.Duration // the time for which lists come
		writesElsewhere bool          // another resource is written before each list
		wantProven      bool          // some lists are answered
		wantUnavailable reason.Reason // why there is no newest state at the end; None: anything
		// At most mostInVain lists wait in vain. The other numbers bound the requests of the feed.
		mostInVain, mostShortWatches, mostProbes, mostLoads int
	}{
		"streams end at once": {
			upstream: &upstream{watch: func(_ int, from uint64) []string {
				if from < 7 { // the newest change, sent again, shows the feed that the upstream's timeline is still the same
					return []string{newestChange, errorEvent(http.StatusInternalServerError)}
				}
				return []string{errorEvent(http.StatusInternalServerError)}
			}},
			interval: 300 * time.Millisecond, duration: 30 * time.Second, wantProven: true, // 100 lists come
			mostInVain: 3, mostProbes: 100, mostLoads: 5,
		},
		"short watches are refused, for 20 s": {
			upstream: &upstream{
				shortWatchRepeats: new(""),
				intercept: answerKind(kindShortWatch, func(r *http.Request) *http.Response {
					return busyResponse(r, http.StatusTooManyRequests, "20")
				}),
			},
			interval: time.Second, duration: 20 * time.Second, writesElsewhere: true,
			mostInVain: 2, mostProbes: 100, mostLoads: 1,
		},
		// An API server without a watch cache sends no bookmarks. The feed leaves its silent stream again and again. It loads
		// the state anew then, but at most once every three minutes.
		"short watches have no bookmark, for hours": {
			upstream: &upstream{shortWatchRepeats: new("")},
			interval: 10 * time.Second, duration: withoutBookmarks, writesElsewhere: true, wantUnavailable: reason.NotProven,
			mostInVain: 5, mostShortWatches: 12,
			mostProbes: int(withoutBookmarks / (20 * time.Second)), mostLoads: int(withoutBookmarks / (3 * time.Minute)),
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			u := tt.upstream
			u.revision = 9
			c := runFeed(t, u, time.Second)
			inVain, proven := 0, 0
			for begun := time.Now(); time.Since(begun) < tt.duration; time.Sleep(tt.interval) {
				if tt.writesElsewhere {
					u.mu.Lock()
					u.revision++
					u.mu.Unlock()
				}
				if c.WhyNotConsistent(index.Query{}, c.shared.probes.Last(), consistentWait) != reason.None {
					continue
				}
				if _, unavailable := c.Consistent(t.Context(), c.shared.probes.Last(), consistentWait); unavailable == reason.None {
					proven++
				} else {
					inVain++
				}
			}
			u.mu.Lock()
			defer u.mu.Unlock()
			if (proven > 0) != tt.wantProven {
				t.Errorf("got %d lists answered, want some: %t", proven, tt.wantProven)
			}
			for _, count := range []struct {
				things    string
				got, most int
			}{
				{"lists that waited in vain", inVain, tt.mostInVain},
				{"short watches", u.shortWatches, tt.mostShortWatches},
				{"probes", u.probes, tt.mostProbes},
				{"loads", u.loads, tt.mostLoads},
			} {
				if count.got > count.most {
					t.Errorf("got %d %s, want at most %d", count.got, count.things, count.most)
				}
			}
			if got := c.stats().Unavailable; tt.wantUnavailable != reason.None && got != tt.wantUnavailable {
				t.Errorf("at the end: got reason %q, want %q", got, tt.wantUnavailable)
			}
		})
	}
}

// TestWhyNotConsistent: without waiting, WhyNotConsistent returns why Consistent would find no state. There is none, the query
// selects by an unknown field, or no proof can come in time.
func TestWhyNotConsistent(t *testing.T) {
	c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
	waiting, proven := afterProbes(c)
	expectWhyNot := func(name string, q index.Query, afterProbe uint64, want reason.Reason) {
		t.Helper()
		if got := c.WhyNotConsistent(q, afterProbe, time.Second); got != want {
			t.Errorf("%s: got reason %q, want %q", name, got, want)
		}
	}
	expectWhyNot("a list", index.Query{}, waiting, reason.None)
	unknownField := index.Query{Fields: fields.OneTermEqualSelector("spec.unknown", "x")}
	expectWhyNot("a list by an unknown field", unknownField, waiting, reason.NotCanonical)
	expectWhyNot("a list of a proven state by an unknown field", unknownField, proven, reason.NotCanonical)
	var f source.Freshness
	f.StreamOpened(time.Now())
	f.Refused(time.Now(), time.Minute)
	c.publishFreshness(f)
	expectWhyNot("a list, while the upstream refuses probes", index.Query{}, waiting, reason.NotProven)
	expectWhyNot("a list of a proven state, while the upstream refuses probes", index.Query{}, proven, reason.None)
	c.drop(reason.Upstream)
	expectWhyNot("a list without a state", index.Query{}, waiting, reason.Upstream)
}

// TestConsistentAfterNoProbe: no state is consistent for a list that came at an unknown time. Its probe number is 0.
func TestConsistentAfterNoProbe(t *testing.T) {
	const unknownTime = 0
	c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
	if _, unavailable := c.view.Load().consistent(unknownTime); unavailable == reason.None {
		t.Error("got a state, want none")
	}
}
