package snapshot

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
	"github.com/listproxy/listproxy/test/samples"
)

// liveCollection is a collection with one object, ns/a, at revision 10.
func liveCollection(limits Limits) *Collection {
	c := newCollection(CollectionKey{}, limits, &budget{}, nil, &source.ProbeNumbers{})
	state := index.NewTree(false)
	state.Set(&index.Object{Key: "ns/a", Revision: 10})
	c.load(state, 10)
	return c
}

// load begins with a state, whose stream is read then.
func (c *Collection) load(state index.Tree, rev uint64) {
	c.install(loadedState{state: state, revision: rev, envelope: samples.Envelope("PodList", "v1"), Probe: c.probes.Next()})
	c.setStreaming(true)
}

// at is a probe that was sent at a time.
func (c *Collection) at(asked time.Time) source.Probe {
	return source.Probe{Number: c.probes.Next().Number, Sent: asked}
}

// TestRevisionsThatGoBack: a revision below what was known before the question is another timeline, and none that is
// far above.
func TestRevisionsThatGoBack(t *testing.T) {
	c := liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
	if err := c.observe(9, c.minRevision()); !errors.As(err, new(otherTimelineError)) {
		t.Errorf("a read of revision 9: got %v", err)
	}
	if err := c.observe(1_764_000_000_000_000_000, c.minRevision()); err != nil {
		t.Errorf("a read of a revision that is the time: %v", err)
	}
	c = liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
	minRevision := c.minRevision()
	expect.NoError(t, c.progress(20))
	if err := c.observe(15, minRevision); err != nil {
		t.Errorf("a read that the stream has passed while it was under way: %v", err)
	}
}

// TestWaitsAreBounded: who names a revision that the feed has not reached waits for it for a time, which the
// feed is told of.
func TestWaitsAreBounded(t *testing.T) {
	const wait, moment = time.Second, 50 * time.Millisecond
	for name, tt := range map[string]struct {
		revision uint64
		then     func(c *Collection, leave func()) // after a moment
		waited   time.Duration
		want     reason.Reason
	}{
		"it is there":                         {revision: 10},
		"the next one":                        {revision: 11, waited: wait, want: reason.NotProven},
		"the next one, and it comes":          {revision: 11, waited: moment, then: func(c *Collection, _ func()) { _ = c.progress(12) }},
		"the next one, and who asks has left": {revision: 11, waited: moment, want: reason.NotProven, then: func(_ *Collection, leave func()) { leave() }},
		"the last that there can be":          {revision: 1<<63 - 1, waited: wait, want: reason.NotProven},
	} {
		for kind, ask := range map[string]func(*Collection, context.Context, uint64) (Snapshot, reason.Reason){
			"newer than": (*Collection).NotOlderThan,
			"exactly":    (*Collection).Exact,
			"following": func(c *Collection, ctx context.Context, rev uint64) (Snapshot, reason.Reason) {
				return c.Follow(ctx, rev, true, wait)
			},
		} {
			proxytest.Bubble(t, name+", "+kind, func(t *testing.T) {
				c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute, Wait: wait})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if tt.then != nil {
					time.AfterFunc(moment, func() { tt.then(c, leave) })
				}
				asked := time.Now()
				if _, why := ask(c, ctx, tt.revision); why != tt.want || time.Since(asked) != tt.waited {
					t.Errorf("%q after %v, want %q after %v", why, time.Since(asked), tt.want, tt.waited)
				}
				select {
				case <-c.probeRequests:
				default:
					if tt.waited == wait {
						t.Error("the feed was not told")
					}
				}
			})
		}
	}
}

// whyRetired says why the collection was given up; None if it was not.
func (c *Collection) whyRetired() reason.Reason {
	if v := c.view.Load(); v.retired {
		return v.unavailable
	}
	return reason.None
}

// TestDoubt: what was taken from a collection, and is still to be written, must be what it would
// give now.
func TestDoubt(t *testing.T) {
	newer := stateChange{kind: wire.Modified, key: "ns/a", revision: 11, object: &index.Object{Key: "ns/a", Revision: 11}}
	for name, tt := range map[string]struct {
		then          func(*Collection)
		latest, exact reason.Reason
	}{
		"a change":           {func(c *Collection) { _ = c.apply(newer) }, reason.None, reason.None},
		"a minute":           {func(*Collection) { time.Sleep(time.Minute) }, reason.Stale, reason.None},
		"less than a minute": {func(*Collection) { time.Sleep(time.Minute - 1) }, reason.None, reason.None},
		"the stream ends":    {func(c *Collection) { c.setStreaming(false) }, reason.None, reason.None},
		"all is dropped":     {func(c *Collection) { c.drop(reason.Warming) }, reason.Warming, reason.Warming},
		"it is given up":     {func(c *Collection) { c.retire(reason.Upstream) }, reason.Upstream, reason.Upstream},
		"it is given up, and its feed does not know yet": {func(c *Collection) {
			c.retire(reason.Upstream)
			c.retire(reason.Memory)
			c.load(index.NewTree(false), 10)
			c.drop(reason.Warming)
		}, reason.Upstream, reason.Upstream},
		"read anew":                      {func(c *Collection) { c.load(index.NewTree(false), 99) }, reason.History, reason.History},
		"read anew at the same revision": {func(c *Collection) { c.load(index.NewTree(false), 10) }, reason.Warming, reason.Warming},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
			latest, _ := c.NotOlderThan(t.Context(), 0)
			exact, _ := c.Exact(t.Context(), 10)
			tt.then(c)
			if got := c.Validity().WhyNot(latest, time.Now()); got != tt.latest {
				t.Errorf("the newest state: %q, want %q", got, tt.latest)
			}
			if got := c.Validity().WhyNot(exact, time.Now()); got != tt.exact {
				t.Errorf("an exact one: %q, want %q", got, tt.exact)
			}
		})
	}
}
