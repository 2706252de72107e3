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

// TestNewestOfAQuietResource: other resources are written, and the stream tells nothing of it. The bookmark of
// a watch beside the stream proves the newest state, and nothing else does. Where nothing is written, the
// probe alone does. Nobody waits longer than they want to.
func TestNewestOfAQuietResource(t *testing.T) {
	for name, tt := range map[string]struct {
		beside string
		probe  meddling // from when the state is known
		quiet  bool     // nothing else is written
		want   reason.Reason
		loads  int
	}{
		"nothing is written":             {quiet: true},
		"a bookmark":                     {beside: bookmark(30, "")},
		"a bookmark that is not far yet": {beside: bookmark(29, ""), want: reason.NotProven},
		"nothing":                        {want: reason.NotProven},
		"a change that the stream lacks": {beside: inEvent("MODIFIED", itemBAt(20)) + bookmark(30, ""), want: reason.NotProven},
		"a revision that goes back":      {beside: bookmark(8, ""), want: reason.Warming, loads: 2},
		"an error":                       {beside: inStream(http.StatusGone), want: reason.NotProven},
		"a probe is refused":             {probe: denies("probe", http.StatusTooManyRequests), want: reason.NotProven},
		"a probe fails":                  {probe: denies("probe", http.StatusInternalServerError), want: reason.NotProven},
		"a probe is not answered":        {probe: fault{kind: "probe", lasts: time.Minute, late: time.Hour}.meddle(), want: reason.NotProven},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			const wait = 1500 * time.Millisecond
			u := &upstream{revision: 9, beside: new(tt.beside)}
			c := fed(t, u, time.Second)
			u.mu.Lock()
			u.meddle = tt.probe
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
			if want := max(1, tt.loads); u.loads != want || tt.probe == nil && (u.besides == 0) != tt.quiet {
				t.Errorf("loaded %d times, want %d; %d short watches", u.loads, want, u.besides)
			}
		})
	}
}

// TestNewestIsAskedForTogether: a probe serves all who came before it was sent. Those who came
// after wait for the next.
func TestNewestIsAskedForTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, clients = 100 * time.Millisecond, 1000
		u := &upstream{revision: 9, meddle: fault{kind: "probe", from: time.Second, lasts: time.Minute, late: takes}.meddle()}
		c := fed(t, u, time.Second)
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
	same := inEvent("MODIFIED", itemB) // the same timeline
	for name, tt := range map[string]struct {
		*upstream
		every, takes time.Duration // lists come
		writes       bool          // another resource is written before each
		proven       bool          // some are answered
		// At most: lists that wait in vain, short watches, probes, and loads.
		inVain, besides, probes, loads int
	}{
		"streams end at once": {
			upstream: &upstream{watch: func(_ int, from uint64) []string {
				if from < 7 {
					return []string{same, inStream(http.StatusInternalServerError)}
				}
				return []string{inStream(http.StatusInternalServerError)}
			}},
			every: 300 * time.Millisecond, takes: 30 * time.Second, proven: true, inVain: 3, probes: 100, loads: 5,
		},
		"short watches are refused, for 20 s": {
			upstream: &upstream{beside: new(""), meddle: func(r *http.Request, kind string) (time.Duration, *http.Response) {
				if kind != "short watch" {
					return 0, nil
				}
				return 0, busy(r, http.StatusTooManyRequests, "20")
			}},
			writes: true, every: time.Second, takes: 20 * time.Second, inVain: 2, probes: 100, loads: 1,
		},
		// As without a watch cache. A question comes before each stream. One that is silent is left, and the state
		// loaded anew, every two minutes at most, since nothing shows that the timeline is the same.
		"short watches without a bookmark, for hours": {
			upstream: &upstream{beside: new("")},
			writes:   true, every: 10 * time.Second, takes: 3 * time.Hour, inVain: 5, besides: 12, probes: 24 + 500, loads: 60,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			u := tt.upstream
			u.revision = 9
			c := fed(t, u, time.Second)
			inVain, proven := 0, 0
			for begun := time.Now(); time.Since(begun) < tt.takes; time.Sleep(tt.every) {
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
			if inVain > tt.inVain || (proven > 0) != tt.proven {
				t.Errorf("%d lists waited in vain, %d not", inVain, proven)
			}
			if u.besides > tt.besides || u.probes > tt.probes || u.loads > tt.loads {
				t.Errorf("%d short watches, %d questions, %d loads", u.besides, u.probes, u.loads)
			}
			if tt.takes > time.Hour && !c.stats().NoBookmarks {
				t.Error("people are not told that there are no bookmarks")
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
	if got, _ := c.view.Load().fresh(0); got.Envelope != nil {
		t.Error("one of which nobody knows when it came is answered")
	}
	var f source.Freshness
	f.Follow(time.Now())
	f.Refused(time.Now(), time.Minute)
	c.publish(f)
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
		q     index.Query
		after uint64
		want  bool
	}{
		"all":               {q: index.Query{}, after: last},
		"a page":            {q: index.Query{Limit: 100}, after: last, want: true},
		"a large page":      {q: index.Query{Limit: 500}, after: last},
		"of no namespace":   {q: index.Query{Scope: index.Scope{Namespace: "m"}}, after: last, want: true},
		"one object":        {q: index.Query{Name: "0001"}, after: last, want: true},
		"by a label":        {q: index.Query{Labels: labels.SelectorFromSet(labels.Set{"app": "x"})}, after: last, want: true},
		"a page, proven":    {q: index.Query{Limit: 100}, after: last - 1},
		"the end of a list": {q: index.Query{Start: "n/0900"}, after: last, want: true},
	} {
		over, forward := c.ForwardSmall(tt.q, tt.after)
		if forward != tt.want {
			t.Errorf("%s: forwarded %t", name, forward)
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

// TestAccept: the interval goes where a watch beside the stream has come only if it has all that the
// watch has told of.
func TestAccept(t *testing.T) {
	for name, tt := range map[string]struct {
		told  []uint64
		a     progress
		to    uint64
		waits bool
		wrong bool
	}{
		"no change":                     {a: progress{from: 10, revision: 20}, to: 20},
		"a change that is there":        {told: []uint64{15}, a: progress{from: 10, revision: 20, changes: []uint64{15}}, to: 20},
		"a change that is not there":    {told: []uint64{15}, a: progress{from: 10, revision: 20, changes: []uint64{15, 16}}, to: 15, waits: true},
		"the stream is further":         {told: []uint64{25}, a: progress{from: 10, revision: 20}, to: 25},
		"a change that was passed over": {told: []uint64{18}, a: progress{from: 10, revision: 20, changes: []uint64{15, 18}}, to: 18, wrong: true},
		"nothing was told":              {to: 10},
		"from another server":           {a: progress{from: 7, revision: 9}, to: 10},
		"from before the load":          {a: progress{from: 7, revision: 20, changes: []uint64{9}}, to: 20},
	} {
		t.Run(name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
			for _, revision := range tt.told {
				o := &index.Object{Key: "ns/a", Revision: revision}
				expect.NoError(t, c.apply(stateChange{kind: wire.Modified, key: o.Key, revision: revision, object: o}))
			}
			left, err := c.takeProgress(tt.a)
			if (err != nil) != tt.wrong || err == nil && (left.revision > 0) != tt.waits {
				t.Errorf("%+v is left, %v", left, err)
			}
			if to := c.view.Load().To; to != tt.to {
				t.Errorf("it has come to %d, want %d", to, tt.to)
			}
		})
	}
	c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
	c.drop(reason.Warming)
	if left, err := c.takeProgress(progress{from: 10, revision: 20}); err != nil || left.revision > 0 {
		t.Errorf("without a state: %+v, %v", left, err)
	}
}

// TestNewestWaitsForALoadBeside: while the state is loaded anew beside the known one, who wants the newest
// state waits for it, for a time; who takes any state does not.
func TestNewestWaitsForALoadBeside(t *testing.T) {
	for name, ends := range map[string]func(*Collection){
		"loaded":     func(c *Collection) { c.load(index.NewTree(false), 20) },
		"not loaded": func(c *Collection) { c.setReloadingSince(time.Time{}) },
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Minute, Staleness: time.Hour})
			c.setReloadingSince(time.Now())
			time.Sleep(2 * time.Second)
			if anyState, newest := c.LoadTimeLeft(10*time.Second, false), c.LoadTimeLeft(10*time.Second, true); anyState != 0 || newest != 8*time.Second {
				t.Errorf("any state waits for %v, the newest for %v", anyState, newest)
			}
			time.AfterFunc(time.Second, func() { ends(c) })
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
		sent time.Time
		want reason.Reason
	}{
		"before the machine was suspended for an hour":    {proxytest.EarlierByTheWallClock(now.Add(-time.Second), time.Hour), reason.Stale},
		"long ago, before the clock was set back an hour": {proxytest.EarlierByTheWallClock(now.Add(-time.Minute), -time.Hour), reason.Stale},
		"just now, before the clock was set back an hour": {proxytest.EarlierByTheWallClock(now.Add(-time.Second), -time.Hour), reason.None},
	} {
		v := &View{unavailable: reason.None, currentAt: source.Probe{Sent: tt.sent}}
		if _, got := v.latest(moment{now: now, bound: bound}, 0); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
