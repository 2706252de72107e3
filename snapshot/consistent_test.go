package snapshot

import (
	"context"
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
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// A list of the newest state must have everything that was written before the list came. Memory proves this in two steps: the
// feed sends a probe, which asks for the upstream's newest revision, and then its state must reach that revision.

// consistentWait is the longest time for which a list of the newest state waits for its proof.
const consistentWait = 1500 * time.Millisecond

// TestConsistentOfAQuietResource: Consistent returns the state once a probe has proven it. If only other resources were
// written, the stream sends nothing. Then a progress watch (a short watch up to a bookmark) must show that the state has
// reached the probe's revision. A list that gets no proof waits for consistentWait.
func TestConsistentOfAQuietResource(t *testing.T) {
	const upstreamAt = loadedAt + 2 // the upstream's revision when the list comes, unless nothing was written
	progressWatchesSend := func(lines string) interceptor { return answerKind(kindShortWatch, sendEvery(time.Second, lines)) }
	for name, tt := range map[string]struct {
		nothingWritten bool        // the upstream is still at the state's revision when the list comes
		intercept      interceptor // answers requests from the time at which the list comes; nil: the API server answers

		want              reason.Reason // why Consistent returns no state; None: it returns one
		wantProgressWatch bool          // the feed opens a progress watch
		wantReload        bool          // the feed loads the state anew
	}{
		"nothing is written": {nothingWritten: true},
		"other resources are written, and the progress watch has a bookmark": {wantProgressWatch: true},
		"the bookmark is below the upstream's revision": {
			intercept: progressWatchesSend(bookmark(upstreamAt - 1)),
			want:      reason.NotProven, wantProgressWatch: true,
		},
		"the progress watch has nothing": {
			intercept: progressWatchesSend(""),
			want:      reason.NotProven, wantProgressWatch: true,
		},
		"the progress watch has a change that the stream lacks": {
			intercept: progressWatchesSend(event("MODIFIED", "b", upstreamAt-1) + bookmark(upstreamAt)),
			want:      reason.NotProven, wantProgressWatch: true,
		},
		"the bookmark is below the state's revision": { // which contradicts the state
			intercept: progressWatchesSend(bookmark(loadedAt - 1)),
			want:      reason.Warming, wantProgressWatch: true, wantReload: true,
		},
		"the progress watch has an error": {
			intercept: progressWatchesSend(errorEvent(http.StatusGone)),
			want:      reason.NotProven, wantProgressWatch: true,
		},
		"probes are answered 429": {
			intercept: answerKind(kindProbe, refuse(http.StatusTooManyRequests)),
			want:      reason.NotProven,
		},
		"probes are not answered": {
			intercept: fault{kind: kindProbe, delay: time.Hour}.intercept(),
			want:      reason.NotProven,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			p := newPlane(t, "a", "b")
			c := runFeed(t, p, time.Second)
			p.intercept(tt.intercept)
			if !tt.nothingWritten {
				p.writeElsewhere()
				p.writeElsewhere()
				expect.Same(t, int64(upstreamAt), p.Revision())
			}

			// The list comes.
			cameAt := time.Now()
			snap, unavailable := c.Consistent(t.Context(), c.shared.probes.Last(), consistentWait)
			if unavailable != tt.want {
				t.Errorf("got reason %q, want %q", unavailable, tt.want)
			}
			if took := time.Since(cameAt); tt.want == reason.NotProven && took != consistentWait {
				t.Errorf("without a proof: waited for %v, want %v", took, consistentWait)
			}
			if unavailable == reason.None {
				expect.Same(t, p.Revision(), int64(snap.Revision)) // #nosec G115 -- was an int64 before
				expectCurrentSince(t, cameAt, snap)
			}

			time.Sleep(10 * time.Second) // by now, a reload has ended
			if reloaded := p.count(kindStreamingList) > 1; reloaded != tt.wantReload {
				t.Errorf("the state was loaded anew: got %t, want %t", reloaded, tt.wantReload)
			}
			if opened := p.count(kindShortWatch) > 0; opened != tt.wantProgressWatch {
				t.Errorf("a progress watch was opened: got %t, want %t", opened, tt.wantProgressWatch)
			}
		})
	}
}

// expectCurrentSince checks that a state has everything that was written before a list came.
func expectCurrentSince(t *testing.T, cameAt time.Time, snap Snapshot) {
	t.Helper()
	if snap.CurrentAt.Before(cameAt) {
		t.Errorf("the state is current as of %v before the list came, want a time after it", cameAt.Sub(snap.CurrentAt))
	}
}

// TestListsShareProbes: one probe serves all lists of the newest state that came before it was sent. Later lists wait for the
// next probe.
func TestListsShareProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, duration = 1000, time.Second // a client comes in each millisecond
		const probeTime = 100 * time.Millisecond    // from a probe to its answer
		const maxWait = 2 * probeTime               // a list that comes just after a probe was sent needs the next probe
		slowProbes := fault{kind: kindProbe, begins: time.Second, delay: probeTime}
		p := newPlane(t, "a", "b")
		p.intercept(slowProbes.intercept())
		c := runFeed(t, p, time.Second)
		before := p.count(kindProbe)
		var lists sync.WaitGroup
		for i := range clients {
			lists.Go(func() {
				time.Sleep(time.Duration(i) * duration / clients)
				cameAt := time.Now()
				snap, unavailable := c.Consistent(t.Context(), c.shared.probes.Last(), time.Hour)
				if unavailable != reason.None {
					t.Errorf("got reason %q, want a state", unavailable)
					return
				}
				expectCurrentSince(t, cameAt, snap)
				if took := time.Since(cameAt); took > maxWait {
					t.Errorf("waited for %v, want at most %v", took, maxWait)
				}
			})
		}
		lists.Wait()
		synctest.Wait()
		const want = int(duration / probeTime) // one probe after the other
		if got := p.count(kindProbe) - before; got < want-1 || got > want+2 {
			t.Errorf("got %d probes for %d lists, want about %d", got, clients, want)
		}
	})
}

// TestProbeBeforeAResumedStream: before a feed resumes its stream, it sends a probe. This probe also serves a list that waits
// then, so no other probe follows.
func TestProbeBeforeAResumedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, "a", "b")
		c, unavailable := newCollections(t, p, func(c *Config) {
			c.SameTimeline = func(context.Context, uint64, time.Time) (same, proofMayCome bool) { return true, false }
		}).Use(widgets)
		expect.Same(t, reason.None, unavailable)
		synctest.Wait()
		p.End(inmemory.Widgets.Path)
		time.Sleep(50 * time.Millisecond) // the feed pauses after the first stream
		p.writeElsewhere()
		before := p.count(kindProbe)
		snap, unavailable := c.Consistent(t.Context(), c.shared.probes.Last(), consistentWait)
		expect.Same(t, reason.None, unavailable)
		expect.Same(t, uint64(loadedAt+1), snap.Revision)
		time.Sleep(2 * time.Second) // in which a needless probe would be sent
		expect.Same(t, 1, p.count(kindProbe)-before)
	})
}

// TestResumedStreamIsProven: before a stream is resumed, a probe is sent. Once the stream is open, this probe proves the state,
// even if nothing was read from the stream yet. So the state no longer counts as old as before the break.
func TestResumedStreamIsProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newCollections(t, newPlane(t, "a", "b"))
		c := expectUse(t, "at first", all, widgets, reason.None)
		before := c.view.Load().provenBy
		f := all.newFeed(c, Settings{})
		f.timelineKnownAt = time.Now()
		stream, err := f.resume(t.Context())
		expect.NoError(t, err)
		stream.Stop()
		if got := c.view.Load().provenBy; got.Number <= before.Number {
			t.Errorf("got a state proven by probe %d, want a later one than %d", got.Number, before.Number)
		}
	})
}

// TestUpstreamWithoutBookmarks: an API server without a watch cache sends no bookmarks, so no progress watch proves a state.
// WhyNotConsistent, which a list asks before it waits, lets few lists wait in vain. The feed sends few requests for hours.
func TestUpstreamWithoutBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const duration, listEvery = 3 * time.Hour, 10 * time.Second
		p := newPlane(t, "a", "b")
		p.Silence(inmemory.Widgets.Path)
		c := runFeed(t, p, time.Second)
		waitedInVain := 0
		for begunAt := time.Now(); time.Since(begunAt) < duration; time.Sleep(listEvery) {
			p.writeElsewhere()
			if c.WhyNotConsistent(index.Query{}, c.shared.probes.Last(), consistentWait) != reason.None {
				continue
			}
			if _, unavailable := c.Consistent(t.Context(), c.shared.probes.Last(), consistentWait); unavailable == reason.None {
				t.Error("a list was answered without a proof")
			}
			waitedInVain++
		}
		expectAtMost := func(what string, got, most int) {
			t.Helper()
			if got > most {
				t.Errorf("%s in %v: got %d, want at most %d", what, duration, got, most)
			}
		}
		const oneIn20Seconds, oneIn3Minutes = int(duration / (20 * time.Second)), int(duration / (3 * time.Minute))
		expectAtMost("lists that waited in vain", waitedInVain, 5)
		expectAtMost("progress watches", p.count(kindShortWatch), 12)
		expectAtMost("probes", p.count(kindProbe), oneIn20Seconds)
		expectAtMost("loads", p.count(kindStreamingList), oneIn3Minutes) // the feed leaves its silent stream that often
		if why := c.stats().Unavailable; why != reason.NotProven {
			t.Errorf("the newest state at the end: got reason %q, want %q", why, reason.NotProven)
		}
	})
}

// TestWhyNotConsistent: WhyNotConsistent returns at once why Consistent would find no state: there is none, the query selects
// by an unknown field, or no proof can come in time.
func TestWhyNotConsistent(t *testing.T) {
	c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
	// The state is proven by the last probe. So it is proven for a list that came before that probe, and not for a list that
	// came after it. A list knows the number of the last probe that was sent before the list came.
	lastProbe := c.shared.probes.Last()
	proven, notProven := lastProbe-1, lastProbe
	expectWhyNot := func(name string, q index.Query, afterProbe uint64, want reason.Reason) {
		t.Helper()
		if got := c.WhyNotConsistent(q, afterProbe, time.Second); got != want {
			t.Errorf("%s: got reason %q, want %q", name, got, want)
		}
	}
	expectWhyNot("a list", index.Query{}, notProven, reason.None)
	unknownField := index.Query{Fields: fields.OneTermEqualSelector("spec.unknown", "x")}
	expectWhyNot("a list by an unknown field", unknownField, notProven, reason.NotCanonical)
	expectWhyNot("a list of a proven state by an unknown field", unknownField, proven, reason.NotCanonical)
	var f source.Freshness
	f.StreamOpened(time.Now())
	f.ProbeRefused(time.Now(), time.Minute)
	c.publishFreshness(f)
	expectWhyNot("a list, while the upstream refuses probes", index.Query{}, notProven, reason.NotProven)
	expectWhyNot("a list of a proven state, while the upstream refuses probes", index.Query{}, proven, reason.None)
	c.drop(reason.Upstream)
	expectWhyNot("a list without a state", index.Query{}, notProven, reason.Upstream)
}

// TestConsistentAfterNoProbe: no state is consistent for a list without a probe number: it came at an unknown time.
func TestConsistentAfterNoProbe(t *testing.T) {
	const noProbe = 0
	c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
	if _, unavailable := c.view.Load().consistent(noProbe); unavailable != reason.NotProven {
		t.Errorf("got reason %q, want %q", unavailable, reason.NotProven)
	}
}
