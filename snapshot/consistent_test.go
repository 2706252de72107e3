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

// consistentWait is the longest time for which a list of the newest state waits for its proof.
const consistentWait = 1500 * time.Millisecond

// TestConsistentOfAQuietResource: Consistent returns the state once a probe has proven it. If other resources were written since,
// so that the upstream is at a later revision, the proof also needs a bookmark at that revision from a progress watch. A list
// that gets no proof waits for consistentWait.
func TestConsistentOfAQuietResource(t *testing.T) {
	const later = loadedAt + 2
	shortWatchesSend := func(lines string) interceptor { return answerKind(kindShortWatch, sendEvery(time.Second, lines)) }
	for name, tt := range map[string]struct {
		isQuiet           bool        // nothing was written when the list comes, else the upstream is at later
		intercept         interceptor // answers requests since the list came; nil: the API server answers
		want              reason.Reason
		wantProgressWatch bool
		wantReload        bool
	}{
		"nothing is written":              {isQuiet: true},
		"a progress watch has a bookmark": {wantProgressWatch: true},
		"the bookmark is below the upstream's revision": {
			intercept: shortWatchesSend(bookmark(later - 1)), want: reason.NotProven, wantProgressWatch: true,
		},
		"a progress watch has nothing": {
			intercept: shortWatchesSend(""), want: reason.NotProven, wantProgressWatch: true,
		},
		"a progress watch has a change that the stream lacks": {
			intercept: shortWatchesSend(event("MODIFIED", "b", later-1) + bookmark(later)),
			want:      reason.NotProven, wantProgressWatch: true,
		},
		"the bookmark is below the state's revision": {
			intercept: shortWatchesSend(bookmark(loadedAt - 1)), want: reason.Warming, wantProgressWatch: true, wantReload: true,
		},
		"a progress watch has an error": {
			intercept: shortWatchesSend(errorEvent(http.StatusGone)), want: reason.NotProven, wantProgressWatch: true,
		},
		"probes are answered 429": {
			intercept: answerKind(kindProbe, refuse(http.StatusTooManyRequests)), want: reason.NotProven,
		},
		"probes are not answered": {
			intercept: fault{kind: kindProbe, delay: time.Hour}.intercept(), want: reason.NotProven,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			p := newPlane(t, "a", "b")
			c := runFeed(t, p, time.Second)
			p.intercept(tt.intercept)
			for !tt.isQuiet && p.Revision() < later {
				p.writeElsewhere()
			}
			came := time.Now()
			snap, unavailable := c.Consistent(t.Context(), c.shared.probes.Last(), consistentWait)
			if unavailable != tt.want {
				t.Errorf("got reason %q, want %q", unavailable, tt.want)
			}
			if took := time.Since(came); tt.want == reason.NotProven && took != consistentWait {
				t.Errorf("without a proof: waited for %v, want %v", took, consistentWait)
			}
			if unavailable == reason.None {
				expect.Same(t, p.Revision(), int64(snap.Revision)) // #nosec G115 -- was an int64 before
				expectCurrentSince(t, came, snap)
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

// expectCurrentSince checks that a state has everything that was written before a list came at a time.
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
		const clients, duration = 1000, time.Second // the clients come evenly within this time
		const probeTime = 100 * time.Millisecond    // from a probe to its answer
		const maxWait = 2 * probeTime               // the rest of a probe that was sent before the list came, and the next probe
		slowProbes := fault{kind: kindProbe, begins: time.Second, delay: probeTime}
		p := newPlane(t, "a", "b")
		p.intercept(slowProbes.intercept())
		c := runFeed(t, p, time.Second)
		before := p.count(kindProbe)
		var lists sync.WaitGroup
		for i := range clients {
			lists.Go(func() {
				time.Sleep(time.Duration(i) * duration / clients)
				came := time.Now()
				snap, unavailable := c.Consistent(t.Context(), c.shared.probes.Last(), time.Hour)
				if unavailable != reason.None {
					t.Errorf("got reason %q, want a state", unavailable)
					return
				}
				expectCurrentSince(t, came, snap)
				if took := time.Since(came); took > maxWait {
					t.Errorf("waited for %v, want at most %v", took, maxWait)
				}
			})
		}
		lists.Wait()
		synctest.Wait()
		const oneAfterAnother = int(duration / probeTime)
		if got := p.count(kindProbe) - before; got < oneAfterAnother-1 || got > oneAfterAnother+2 {
			t.Errorf("got %d probes for %d lists, want about %d", got, clients, oneAfterAnother)
		}
	})
}

// TestProbeBeforeAResumedStream: the probe before a stream is resumed also serves a list that waits then. No other probe follows.
func TestProbeBeforeAResumedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, "a", "b")
		c, unavailable := newCollections(t, p, func(c *Config) {
			c.SameTimeline = func(context.Context, uint64, time.Time) (same, soon bool) { return true, false }
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

// TestResumedStreamIsProven: before a resumed stream is read, the collection is as new as the probe that was sent for it. So it is
// never taken for as old as before the break.
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
// WhyNotConsistent lets few lists wait in vain, and the feed sends few requests for hours.
func TestUpstreamWithoutBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const duration, listEvery = 3 * time.Hour, 10 * time.Second
		p := newPlane(t, "a", "b")
		p.Silence(inmemory.Widgets.Path)
		c := runFeed(t, p, time.Second)
		inVain := 0
		for begun := time.Now(); time.Since(begun) < duration; time.Sleep(listEvery) {
			p.writeElsewhere()
			if c.WhyNotConsistent(index.Query{}, c.shared.probes.Last(), consistentWait) != reason.None {
				continue
			}
			if _, unavailable := c.Consistent(t.Context(), c.shared.probes.Last(), consistentWait); unavailable == reason.None {
				t.Error("a list was answered without a proof")
			}
			inVain++
		}
		expectAtMost := func(what string, got, most int) {
			t.Helper()
			if got > most {
				t.Errorf("%s in %v: got %d, want at most %d", what, duration, got, most)
			}
		}
		expectAtMost("lists that waited in vain", inVain, 5)
		expectAtMost("progress watches", p.count(kindShortWatch), 12)
		expectAtMost("probes", p.count(kindProbe), int(duration/(20*time.Second)))
		expectAtMost("loads", p.count(kindStreamingList), int(duration/(3*time.Minute))) // each time it leaves its silent stream
		if why := c.stats().Unavailable; why != reason.NotProven {
			t.Errorf("the newest state at the end: got reason %q, want %q", why, reason.NotProven)
		}
	})
}

// TestWhyNotConsistent: WhyNotConsistent returns at once why Consistent would find no state: there is none, the query selects
// by an unknown field, or no proof can come in time.
func TestWhyNotConsistent(t *testing.T) {
	c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
	last := c.shared.probes.Last()
	notProven, proven := last, last-1 // the values of afterProbe of lists that came after the last probe, or before
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
