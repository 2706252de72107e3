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
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// consistentWait is the time that a list of the newest state waits for its proof.
const consistentWait = 1500 * time.Millisecond

// TestNewestOfAQuietResource: if only other resources are written, Consistent returns the state once the bookmark of a short
// watch has proven it; if nothing is written, once a probe has. A list that gets no proof waits for maxWait.
func TestNewestOfAQuietResource(t *testing.T) {
	for name, tt := range map[string]struct {
		shortWatchRepeats string
		probes            interceptor // once the state is known
		quiet             bool        // nothing is written, also no other resource
		wantUnavailable   reason.Reason
		wantShortWatch    bool
		wantReload        bool
	}{
		"nothing is written": {quiet: true},
		"a short watch has a bookmark": {
			shortWatchRepeats: bookmark(30, ""), wantShortWatch: true,
		},
		"the bookmark is below the upstream's revision": {
			shortWatchRepeats: bookmark(29, ""), wantUnavailable: reason.NotProven, wantShortWatch: true,
		},
		"a short watch has nothing": {wantUnavailable: reason.NotProven, wantShortWatch: true},
		"a short watch has a change that the stream lacks": {
			shortWatchRepeats: itemEvent("MODIFIED", itemBAt(20)) + bookmark(30, ""),
			wantUnavailable:   reason.NotProven, wantShortWatch: true,
		},
		"the bookmark is below the state's revision": {
			shortWatchRepeats: bookmark(8, ""), wantUnavailable: reason.Warming, wantShortWatch: true, wantReload: true,
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
			u := &upstream{revision: 9, shortWatchRepeats: new(tt.shortWatchRepeats)}
			c := runFeed(t, u, time.Second)
			u.mu.Lock()
			u.intercept = tt.probes
			if !tt.quiet {
				u.revision = 30
			}
			wantRevision := u.revision
			u.mu.Unlock()
			begun := time.Now()
			snap, unavailable := c.Consistent(t.Context(), c.probes.Last(), consistentWait)
			if unavailable != tt.wantUnavailable {
				t.Errorf("got reason %q, want %q", unavailable, tt.wantUnavailable)
			}
			waitedInVain := time.Since(begun) == consistentWait
			if want := tt.wantUnavailable == reason.NotProven; waitedInVain != want {
				t.Errorf("waited for the whole time: got %t, want %t", waitedInVain, want)
			}
			if unavailable == reason.None {
				expect.Same(t, wantRevision, snap.Revision)
				if snap.CurrentAt.Before(begun) {
					t.Errorf("the state is current as of %v before the list came, want after", begun.Sub(snap.CurrentAt))
				}
			}
			time.Sleep(10 * time.Second) // a reload would have ended
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

// TestNewestIsAskedForTogether: one probe serves all lists of the newest state that came before it was sent. Later lists wait
// for the next.
func TestNewestIsAskedForTogether(t *testing.T) {
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
				time.Sleep(time.Duration(i) * time.Second / clients) // so that they come within a second
				came := time.Now()
				snap, unavailable := c.Consistent(t.Context(), c.probes.Last(), 3*probeTime)
				if unavailable != reason.None || snap.CurrentAt.Before(came) {
					t.Errorf("got reason %q, current %v after the list came; want a state that is", unavailable, snap.CurrentAt.Sub(came))
				}
				if took := time.Since(came); took > 2*probeTime { // the rest of a probe that came too early, and the next one
					t.Errorf("waited for %v, want at most %v", took, 2*probeTime)
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
	const hours = 3 * time.Hour
	sameTimeline := itemEvent("MODIFIED", itemB)
	for name, tt := range map[string]struct {
		upstream        *upstream
		interval        time.Duration // between two lists
		duration        time.Duration // for which lists come
		writesElsewhere bool          // another resource is written before each list
		wantProven      bool          // some lists are answered
		wantUnavailable reason.Reason // at the end; None: any
		// At most so many lists wait in vain, and the feed sends at most so many requests.
		mostInVain, mostShortWatches, mostProbes, mostLoads int
	}{
		"streams end at once": {
			upstream: &upstream{watch: func(_ int, from uint64) []string {
				if from < 7 {
					return []string{sameTimeline, errorEvent(http.StatusInternalServerError)}
				}
				return []string{errorEvent(http.StatusInternalServerError)}
			}},
			interval: 300 * time.Millisecond, duration: 30 * time.Second, wantProven: true,
			mostInVain: 3, mostProbes: 100, mostLoads: 5, // of 100 lists
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
		// As without a watch cache. A stream that is silent is left and the state loaded anew, though not each time, since
		// nothing shows that the timeline is the same.
		"short watches have no bookmark, for hours": {
			upstream: &upstream{shortWatchRepeats: new("")},
			interval: 10 * time.Second, duration: hours, writesElsewhere: true, wantUnavailable: reason.NotProven,
			mostInVain: 5, mostShortWatches: 12,
			mostProbes: int(hours / (20 * time.Second)), mostLoads: int(hours / (3 * time.Minute)),
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
				if c.WhyNotConsistent(index.Query{}, c.probes.Last(), consistentWait) != reason.None {
					continue
				}
				if _, unavailable := c.Consistent(t.Context(), c.probes.Last(), consistentWait); unavailable == reason.None {
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

// TestWhyNotConsistent: WhyNotConsistent returns why Consistent would find no state, without waiting for it: there is
// none, it does not know a field, or no proof can come in time.
func TestWhyNotConsistent(t *testing.T) {
	c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
	waiting := c.probes.Last() // the last probe that was sent before a list that must wait for a proof
	proven := waiting - 1
	expectWhyNot := func(name string, q index.Query, after uint64, want reason.Reason) {
		t.Helper()
		if got := c.WhyNotConsistent(q, after, time.Second); got != want {
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

// TestConsistentAfterNoProbe: a state is never consistent for a list that came at an unknown time (the probe number 0).
func TestConsistentAfterNoProbe(t *testing.T) {
	c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
	if _, unavailable := c.view.Load().consistent(0); unavailable == reason.None {
		t.Error("got a state, want none")
	}
}

// collectionOfMany returns a collection of 1000 objects of 1000 bytes at revision 10, all in the namespace n.
func collectionOfMany() *Collection {
	c, state := liveCollection(Limits{History: time.Hour, Staleness: time.Hour}), index.NewTree(false)
	for i := range 1000 {
		state.Set(index.NewObject(uint64(i), fmt.Sprintf("n/%04d", i), 1, bytes.Repeat([]byte("x"), 1000)))
	}
	loadState(c, state, 10)
	return c
}

// TestTryForwardSmall: TryForwardSmall forwards a list of the newest state if the work for it is at most maxSmallWork, and no probe
// that was sent after the list came has proven the state yet.
func TestTryForwardSmall(t *testing.T) {
	c := collectionOfMany()
	waiting := c.probes.Last() // the last probe that was sent before a list that must wait for a proof
	proven := waiting - 1
	for name, tt := range map[string]struct {
		query         index.Query
		after         uint64
		wantForwarded bool
	}{
		"all objects":          {query: index.Query{}, after: waiting},
		"a page of 100":        {query: index.Query{Limit: 100}, after: waiting, wantForwarded: true},
		"a page of 500":        {query: index.Query{Limit: 500}, after: waiting},
		"an empty namespace":   {query: index.Query{Scope: index.Scope{Namespace: "m"}}, after: waiting, wantForwarded: true},
		"one object":           {query: index.Query{Name: "0001"}, after: waiting, wantForwarded: true},
		"the last 100 objects": {query: index.Query{Start: "n/0900"}, after: waiting, wantForwarded: true},
		"a label that no object has": {
			query: index.Query{Labels: labels.SelectorFromSet(labels.Set{"app": "x"})}, after: waiting, wantForwarded: true,
		},
		"a page of 100 of a proven state": {query: index.Query{Limit: 100}, after: proven},
	} {
		done, forwarded := c.TryForwardSmall(tt.query, tt.after)
		if forwarded != tt.wantForwarded {
			t.Errorf("%s: forwarded: got %t, want %t", name, forwarded, tt.wantForwarded)
		}
		if forwarded {
			done()
		}
	}
}

// TestTryForwardSmallIsBounded: TryForwardSmall lets maxSmallForwards lists of a collection be forwarded at the same time, and none
// if there is no state.
func TestTryForwardSmallIsBounded(t *testing.T) {
	c := collectionOfMany()
	forward := func() (done func(), forwarded bool) { return c.TryForwardSmall(index.Query{Limit: 1}, c.probes.Last()) }
	var dones []func()
	for range 10 * maxSmallForwards {
		if done, forwarded := forward(); forwarded {
			dones = append(dones, done)
		}
	}
	if len(dones) != maxSmallForwards {
		t.Errorf("got %d lists forwarded at the same time, want %d", len(dones), maxSmallForwards)
	}
	dones[0]()
	done, forwarded := forward()
	if !forwarded {
		t.Fatal("after one list is done, no other is forwarded")
	}
	done()
	c.drop(reason.Upstream)
	if _, forwarded := forward(); forwarded {
		t.Error("a list is forwarded though there is no state")
	}
}

// TestTryForwardPage: TryForwardPage forwards a small page of a list whose revision memory has not reached, and requests a probe.
func TestTryForwardPage(t *testing.T) {
	c := collectionOfMany()
	const reached, notReached = 10, 11
	if _, forwarded := c.TryForwardPage(index.Query{Limit: 1, Start: "n/0001"}, reached); forwarded {
		t.Error("a page at a revision that memory has reached is forwarded")
	}
	if _, forwarded := c.TryForwardPage(index.Query{Start: "n/0001"}, notReached); forwarded {
		t.Error("a large page is forwarded")
	}
	if len(c.probeRequests) != 0 {
		t.Error("a probe is requested for a page that is not forwarded")
	}
	done, forwarded := c.TryForwardPage(index.Query{Limit: 1, Start: "n/0001"}, notReached)
	if !forwarded {
		t.Fatal("a small page at a revision that memory has not reached is not forwarded")
	}
	done()
	if len(c.probeRequests) != 1 {
		t.Error("no probe is requested for a page that is forwarded")
	}
}
