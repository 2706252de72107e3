package snapshot

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/budget"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// quietResource is an upstream in which other resources are written: its revision moves, and the
// stream of this one tells nothing of it.
type quietResource struct {
	*upstream
	// beside is what a short watch tells after a second, by where it begins; nil: nothing.
	beside func(from string) string
	// probe, if it is not nil, answers probes in place of the upstream, after a time.
	probe  func(*http.Request) (time.Duration, *http.Response)
	opened int // short watches
	// refusesBeside: short watches are refused, for 20 s.
	refusesBeside bool
	asked         int
}

// answers sets what answers probes from now on, and returns how many were asked since then.
func (e *quietResource) answers(probe func(*http.Request) (time.Duration, *http.Response)) (asked func() int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.probe, e.asked = probe, 0
	return func() int {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.asked
	}
}

// RoundTrip implements http.RoundTripper.
func (e *quietResource) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	e.mu.Lock()
	probe := e.probe
	if kindOf(r) == "probe" {
		e.asked++
	}
	e.mu.Unlock()
	switch {
	case kindOf(r) == "probe" && probe != nil:
		after, answer := probe(r)
		if !clock.Sleep(r.Context(), after) {
			return nil, r.Context().Err()
		}
		if answer != nil {
			return answer, nil
		}
	case kindOf(r) == "watch" && q.Get("timeoutSeconds") == "3":
		e.mu.Lock()
		e.opened++
		e.mu.Unlock()
		if e.refusesBeside {
			return busy(r, "20"), nil
		}
		in, out := io.Pipe()
		go func() {
			if clock.Sleep(r.Context(), time.Second) && e.beside != nil {
				_, _ = io.WriteString(out, e.beside(q.Get("resourceVersion")))
			}
			clock.Sleep(r.Context(), 2*time.Second)
			_ = out.CloseWithError(r.Context().Err())
		}()
		return inJSON(r, in), nil
	}
	return e.upstream.RoundTrip(r)
}

// write lets another resource be written.
func (e *quietResource) write(revision uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.revision = revision
}

// TestNewestOfAQuietResource: the bookmark of a watch beside the stream proves it, and nothing else
// does. Where nothing is written, the probe alone does.
func TestNewestOfAQuietResource(t *testing.T) {
	for name, tt := range map[string]struct {
		beside func(string) string
		quiet  bool // nothing else is written
		want   reason.Reason
		loads  int
	}{
		"nothing is written":             {quiet: true},
		"a bookmark":                     {beside: func(string) string { return bookmark(30, "") }},
		"a bookmark that is not far yet": {beside: func(string) string { return bookmark(29, "") }, want: reason.NotProven},
		"nothing":                        {want: reason.NotProven},
		"a change that the stream lacks": {beside: func(string) string { return inEvent("MODIFIED", itemBAt(20)) + bookmark(30, "") }, want: reason.NotProven},
		"a revision that goes back":      {beside: func(string) string { return bookmark(8, "") }, want: reason.Warming, loads: 2},
		"an error":                       {beside: func(string) string { return expired }, want: reason.NotProven},
	} {
		inBubble(t, name, func(t *testing.T) {
			e := &quietResource{upstream: &upstream{revision: 9, watch: func(uint64) []string { return nil }}, beside: tt.beside}
			c := fed(t, e, time.Second)
			at := uint64(9)
			if !tt.quiet {
				at = 30
				e.write(at)
			}
			begun := time.Now()
			snap, why := c.Fresh(t.Context(), c.probes.Last(), 1500*time.Millisecond)
			if why != tt.want {
				t.Errorf("%q, want %q", why, tt.want)
			}
			if why == reason.None && (snap.Revision != at || snap.Heard.Before(begun)) {
				t.Errorf("at revision %d, heard %v before", snap.Revision, begun.Sub(snap.Heard))
			}
			time.Sleep(10 * time.Second)
			e.mu.Lock()
			defer e.mu.Unlock()
			if want := max(1, tt.loads); e.loads != want || (e.opened == 0) != tt.quiet {
				t.Errorf("loaded %d times, want %d; %d short watches", e.loads, want, e.opened)
			}
		})
	}
}

// itemBAt is itemB, last changed at a revision.
func itemBAt(revision int) string {
	return strings.Replace(itemB, `"7"`, fmt.Sprintf("%q", fmt.Sprint(revision)), 1)
}

// TestNewestIsAskedForTogether: a probe serves all who came before it was sent. Those who came
// after wait for the next.
func TestNewestIsAskedForTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, clients = 100 * time.Millisecond, 1000
		e := &quietResource{upstream: &upstream{revision: 9, watch: func(uint64) []string { return nil }}}
		c := fed(t, e, time.Second)
		asked := e.answers(func(*http.Request) (time.Duration, *http.Response) { return takes, nil })
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Second / clients)
				came := time.Now()
				snap, why := c.Fresh(t.Context(), c.probes.Last(), 3*takes)
				if took := time.Since(came); why != reason.None || snap.Heard.Before(came) || took > 2*takes {
					t.Errorf("%q after %v", why, took)
				}
			})
		}
		all.Wait()
		if most := int(time.Second/takes) + 2; asked() > most || asked() < most-3 {
			t.Errorf("%d probes, want %d at most", asked(), most)
		}
	})
}

// TestNewestIsNotProven where the upstream does not say how far it is. Nobody waits longer than
// they want to, and the upstream is left alone for as long as it says.
func TestNewestIsNotProven(t *testing.T) {
	for name, probe := range map[string]func(r *http.Request) (time.Duration, *http.Response){
		"429": func(r *http.Request) (time.Duration, *http.Response) {
			return 0, tooBusy(r, http.StatusTooManyRequests)
		},
		"500": func(r *http.Request) (time.Duration, *http.Response) {
			return 0, tooBusy(r, http.StatusInternalServerError)
		},
		"no answer": func(*http.Request) (time.Duration, *http.Response) { return time.Hour, nil },
	} {
		inBubble(t, name, func(t *testing.T) {
			e := &quietResource{upstream: &upstream{revision: 9, watch: func(uint64) []string { return nil }}}
			c := fed(t, e, time.Second)
			asked := e.answers(probe)
			for range 5 {
				begun := time.Now()
				if _, why := c.Fresh(t.Context(), c.probes.Last(), time.Second); why != reason.NotProven {
					t.Errorf("got %q", why)
				}
				if took := time.Since(begun); took != time.Second {
					t.Errorf("waited for %v", took)
				}
			}
			if asked() > 5 {
				t.Errorf("asked %d times", asked())
			}
			if got := c.life.counts.stats(); len(got.Losses) > 0 || got.Resumes > 0 {
				t.Errorf("the stream did not stay: %+v", got)
			}
		})
	}
}

// TestNobodyWaitsWhileTheStreamIsBroken: while the feed waits until it may open its stream again, no
// proof can come, and no list of the newest state waits for one.
func TestNobodyWaitsWhileTheStreamIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &quietResource{upstream: &upstream{
			revision: 9, watch: func(from uint64) []string {
				if from < 7 {
					return []string{inEvent("MODIFIED", itemB)} // the same past
				}
				return nil
			},
			tells: `{"type":"ERROR","object":` + aStatus + "}\n", pauses: 5 * time.Second,
		}}
		c := fed(t, e, time.Second)
		if got := c.NoFresh(index.Query{}, c.probes.Last(), 2*time.Second); got != reason.None {
			t.Fatalf("with a stream: %q", got)
		}
		e.answers(func(r *http.Request) (time.Duration, *http.Response) {
			return 0, busy(r, "20")
		})
		time.Sleep(8 * time.Second) // the stream has ended, and is not opened again before 20 s are over
		if got := c.NoFresh(index.Query{}, c.probes.Last(), 2*time.Second); got != reason.NotProven {
			t.Errorf("without a stream: %q", got)
		}
		e.answers(nil)
		time.Sleep(20 * time.Second)
		if got := c.NoFresh(index.Query{}, c.probes.Last(), 2*time.Second); got != reason.None {
			t.Errorf("with a stream again: %q", got)
		}
	})
}

// TestNobodyWaitsBetweenShortStreams: nor where streams end at once, while the feed waits before it
// opens the next one.
func TestNobodyWaitsBetweenShortStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{revision: 9, watch: func(from uint64) (told []string) {
			if from < 7 {
				told = append(told, inEvent("MODIFIED", itemB)) // the same past
			}
			return append(told, `{"type":"ERROR","object":`+aStatus+"}\n")
		}}
		c := fed(t, u, 30*time.Second)
		inVain := 0
		for range 30 {
			if c.NoFresh(index.Query{}, c.probes.Last(), 1500*time.Millisecond) == reason.None {
				if _, why := c.Fresh(t.Context(), c.probes.Last(), 1500*time.Millisecond); why != reason.None {
					inVain++
				}
			}
			time.Sleep(300 * time.Millisecond)
		}
		if inVain > 3 {
			t.Errorf("%d lists of 30 waited in vain", inVain)
		}
	})
}

// TestShortWatchesThatFail are not opened before the upstream wants them again, and ever less often.
// Few lists wait for them in vain.
func TestShortWatchesThatFail(t *testing.T) {
	for name, tt := range map[string]struct {
		refuses        bool
		opened, inVain int // at most, while 20 lists come
	}{
		"429 with Retry-After": {refuses: true, opened: 2, inVain: 2},
		"no bookmark":          {opened: 5, inVain: 6},
	} {
		inBubble(t, name, func(t *testing.T) {
			e := &quietResource{upstream: &upstream{revision: 9, watch: func(uint64) []string { return nil }}}
			e.refusesBeside = tt.refuses
			c := fed(t, e, time.Second)
			inVain := 0
			for i := range uint64(20) {
				e.write(10 + i)
				if c.NoFresh(index.Query{}, c.probes.Last(), 1500*time.Millisecond) == reason.None {
					inVain++
					if _, why := c.Fresh(t.Context(), c.probes.Last(), 1500*time.Millisecond); why != reason.NotProven {
						t.Errorf("%q", why)
					}
				}
				time.Sleep(time.Second)
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			if inVain > tt.inVain || e.opened > tt.opened {
				t.Errorf("%d lists waited in vain, %d short watches", inVain, e.opened)
			}
		})
	}
}

// TestWithoutBookmarks: where short watches end without one, as without a watch cache, nobody waits for
// a proof any more after a few, and the upstream is asked ever less often; until there is one again.
func TestWithoutBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &quietResource{upstream: &upstream{revision: 9, watch: func(uint64) []string { return nil }}}
		c := fed(t, e, time.Second)
		asked := e.answers(nil)
		waits := func(revision uint64) bool {
			e.write(revision)
			if c.NoFresh(index.Query{}, c.probes.Last(), 1500*time.Millisecond) != reason.None {
				return false
			}
			_, why := c.Fresh(t.Context(), c.probes.Last(), 1500*time.Millisecond)
			return why == reason.NotProven
		}
		revision, inVain := uint64(10), 0
		for begun := time.Now(); time.Since(begun) < 3*time.Hour; revision++ {
			if waits(revision) {
				inVain++
			}
			time.Sleep(10 * time.Second)
		}
		// A question comes before each stream. One that is silent is left, and the state loaded anew, every two
		// minutes at most, since nothing shows that the past is the same.
		if e.opened > 12 || asked() > 24+500 || e.loads > 60 || inVain > 5 {
			t.Errorf("in three hours %d short watches, %d questions and %d loads, and %d lists waited in vain", e.opened, asked(), e.loads, inVain)
		}
		if stats := c.stats(); !stats.NoBookmarks {
			t.Error("nobody is told")
		}
		e.mu.Lock()
		e.beside = func(string) string { return bookmark(e.revision, "") }
		e.mu.Unlock()
		why := reason.NotProven
		for again := time.Now(); why != reason.None && time.Since(again) < time.Hour; time.Sleep(10 * time.Second) {
			revision++
			e.write(revision)
			_, why = c.Fresh(t.Context(), c.probes.Last(), 1500*time.Millisecond)
		}
		if why != reason.None {
			t.Errorf("when there are bookmarks again: %q", why)
		}
	})
}

// TestNoFresh: nobody waits for a proof that cannot come.
func TestNoFresh(t *testing.T) {
	c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
	const wait = time.Second
	last := c.probes.Last()
	if got := c.NoFresh(index.Query{}, last, wait); got != reason.None {
		t.Errorf("a list: %q", got)
	}
	unknown := index.Query{Fields: fields.OneTermEqualSelector("spec.unknown", "x")}
	for _, after := range []uint64{last - 1, last} {
		if got := c.NoFresh(unknown, after, wait); got != reason.NotCanonical {
			t.Errorf("one by a field that memory does not know: %q", got)
		}
	}
	if got, _ := c.view.Load().fresh(0); got.Frame != nil {
		t.Error("one of which nobody knows when it came is answered")
	}
	var f freshness.Machine
	f.Follow(time.Now())
	f.Refused(time.Now(), time.Minute)
	c.publish(f)
	if got := c.NoFresh(index.Query{}, last, wait); got != reason.NotProven {
		t.Errorf("where the upstream wants no question: %q", got)
	}
	if got := c.NoFresh(index.Query{}, last-1, wait); got != reason.None {
		t.Errorf("one that came before the last proof's probe: %q", got)
	}
	c.drop(reason.Upstream)
	if got := c.NoFresh(index.Query{}, last, wait); got != reason.Upstream {
		t.Errorf("without a state: %q", got)
	}
}

// TestForwardSmall: small lists are forwarded, a few at a time, unless they are proven already.
func TestForwardSmall(t *testing.T) {
	c := newCollection(Resource{}, Limits{History: time.Hour, Staleness: time.Hour}, &budget.Bound{}, &watch.Pacer{}, &freshness.Numbers{})
	state := index.NewTree(false)
	for i := range 1000 {
		state.Set(index.NewObject(uint64(i), fmt.Sprintf("n/%04d", i), 1, bytes.Repeat([]byte("x"), 1000)))
	}
	c.open(complete{state: state, revision: 10, frame: wire.FixedFrame("PodList", "v1"), Probe: c.probes.Next()})
	last := c.probes.Last()
	app, err := labels.NewRequirement("app", selection.Equals, []string{"x"})
	expect.NoError(t, err)
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
		"by a label":        {q: index.Query{Labels: labels.NewSelector().Add(*app)}, after: last, want: true},
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
	if len(overs) != smallAtOnce {
		t.Errorf("%d of 300 small lists at once are forwarded, want %d", len(overs), smallAtOnce)
	}
	overs[0]()
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
	tell := func(c *Collection, revision uint64) {
		t.Helper()
		expect.NoError(t, c.apply(change{kind: wire.Modified, key: "ns/a", revision: revision, object: &index.Object{Key: "ns/a", Revision: revision}}))
	}
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
	} {
		t.Run(name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
			for _, revision := range tt.told {
				tell(c, revision)
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
		"loaded": func(c *Collection) {
			c.open(complete{state: index.NewTree(false), revision: 20, frame: wire.FixedFrame("PodList", "v1")})
		},
		"not loaded": func(c *Collection) { c.reloads(time.Time{}) },
	} {
		inBubble(t, name, func(t *testing.T) {
			c := newCollection(Resource{}, Limits{History: time.Minute, Staleness: time.Hour}, &budget.Bound{}, &watch.Pacer{}, &freshness.Numbers{})
			c.open(complete{state: index.NewTree(false), revision: 10, frame: wire.FixedFrame("PodList", "v1")})
			c.reloads(time.Now())
			time.Sleep(2 * time.Second)
			if anyState, newest := c.Loading(10*time.Second, false), c.Loading(10*time.Second, true); anyState != 0 || newest != 8*time.Second {
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
		})
	}
}

// TestShortWatchOverALoad: a short watch that began before a state was loaded anew tells of changes that
// this state has in it. They contradict nothing.
func TestShortWatchOverALoad(t *testing.T) {
	c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
	v := c.view.Load()
	a := progress{from: v.From - 2, revision: v.To + 1, changes: []uint64{v.From - 1}}
	if later, err := c.takeProgress(a); err != nil || later.revision != 0 || c.view.Load().To != a.revision {
		t.Errorf("it came to %d, %v, with %+v to be taken later", c.view.Load().To, err, later)
	}
}
