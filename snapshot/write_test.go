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
	c.outage = noOutage
	state := index.NewTree(false)
	state.Set(&index.Object{Key: "ns/a", Revision: 10})
	c.load(state, 10)
	return c
}

// load begins with a state, whose stream is read then.
func (c *Collection) load(state index.Tree, rev uint64) {
	c.install(loadedState{state: state, revision: rev, envelope: samples.Envelope("PodList", "v1"), askedBy: c.probes.Next()})
	c.setStreaming(true)
}

// at is a probe that was sent at a time.
func (c *Collection) at(asked time.Time) source.Probe {
	return source.Probe{Number: c.probes.Next().Number, Sent: asked}
}

// TestRecordRevision: a revision below the highest one from before the read is an otherTimelineError. One that is far
// above is no error.
func TestRecordRevision(t *testing.T) {
	c := liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
	if err := c.recordRevision(9, c.minRevision()); !errors.As(err, new(otherTimelineError)) {
		t.Errorf("a read of revision 9: got %v", err)
	}
	if err := c.recordRevision(1_764_000_000_000_000_000, c.minRevision()); err != nil {
		t.Errorf("a read of a revision that is the time: %v", err)
	}
	c = liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
	lowest := c.minRevision()
	expect.NoError(t, c.progress(20))
	if err := c.recordRevision(15, lowest); err != nil {
		t.Errorf("a read during which the stream has reached 20: %v", err)
	}
}

// TestWaitsAreBounded: a request for a revision that the feed has not reached waits for Limits.Wait, and requests a
// probe.
func TestWaitsAreBounded(t *testing.T) {
	const wait, moment = time.Second, 50 * time.Millisecond
	for name, tt := range map[string]struct {
		revision uint64
		then     func(c *Collection, leave func()) // is called after a moment
		wantWait time.Duration
		want     reason.Reason
	}{
		"the interval's end":                          {revision: 10},
		"the next revision":                           {revision: 11, wantWait: wait, want: reason.NotProven},
		"the next revision, which the feed reaches":   {revision: 11, wantWait: moment, then: func(c *Collection, _ func()) { _ = c.progress(12) }},
		"the next revision, and the client goes away": {revision: 11, wantWait: moment, want: reason.NotProven, then: func(_ *Collection, leave func()) { leave() }},
		"the highest possible revision":               {revision: 1<<63 - 1, wantWait: wait, want: reason.NotProven},
	} {
		for kind, ask := range map[string]func(*Collection, context.Context, uint64) (Snapshot, reason.Reason){
			"NotOlderThan": (*Collection).NotOlderThan,
			"Exact":        (*Collection).Exact,
			"Follow": func(c *Collection, ctx context.Context, rev uint64) (Snapshot, reason.Reason) {
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
				if _, why := ask(c, ctx, tt.revision); why != tt.want || time.Since(asked) != tt.wantWait {
					t.Errorf("%q after %v, want %q after %v", why, time.Since(asked), tt.want, tt.wantWait)
				}
				select {
				case <-c.probeRequests:
				default:
					if tt.wantWait == wait {
						t.Error("no probe was requested")
					}
				}
			})
		}
	}
}

// whyRetired returns the reason why the collection was retired; None if it was not.
func (c *Collection) whyRetired() reason.Reason {
	if v := c.view.Load(); v.retired {
		return v.unavailable
	}
	return reason.None
}

// TestValidity: a state that was read from a collection is valid as long as the collection would give it.
func TestValidity(t *testing.T) {
	newer := stateChange{kind: wire.Modified, key: "ns/a", revision: 11, object: &index.Object{Key: "ns/a", Revision: 11}}
	for name, tt := range map[string]struct {
		then                  func(*Collection)
		wantNewest, wantExact reason.Reason // why it is not valid any more
	}{
		"a change": {then: func(c *Collection) { _ = c.apply(newer) }},
		"the staleness bound is over": {
			then: func(*Collection) { time.Sleep(time.Minute) }, wantNewest: reason.Stale,
		},
		"the staleness bound is not over": {then: func(*Collection) { time.Sleep(time.Minute - 1) }},
		"the stream ends":                 {then: func(c *Collection) { c.setStreaming(false) }},
		"the state is dropped": {
			then: func(c *Collection) { c.drop(reason.Warming) }, wantNewest: reason.Warming, wantExact: reason.Warming,
		},
		"the collection is retired": {
			then: func(c *Collection) { c.retire(reason.Upstream) }, wantNewest: reason.Upstream, wantExact: reason.Upstream,
		},
		"the collection is retired, and its feed goes on": {
			then: func(c *Collection) {
				c.retire(reason.Upstream)
				c.retire(reason.Memory)
				c.load(index.NewTree(false), 10)
				c.drop(reason.Warming)
			},
			wantNewest: reason.Upstream, wantExact: reason.Upstream,
		},
		"another state is loaded": {
			then: func(c *Collection) { c.load(index.NewTree(false), 99) }, wantNewest: reason.History, wantExact: reason.History,
		},
		"another state is loaded at the same revision": {
			then: func(c *Collection) { c.load(index.NewTree(false), 10) }, wantNewest: reason.Warming, wantExact: reason.Warming,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
			newest, _ := c.NotOlderThan(t.Context(), 0)
			exact, _ := c.Exact(t.Context(), 10)
			tt.then(c)
			if got := c.Validity().WhyNot(newest, time.Now()); got != tt.wantNewest {
				t.Errorf("the newest state: %q, want %q", got, tt.wantNewest)
			}
			if got := c.Validity().WhyNot(exact, time.Now()); got != tt.wantExact {
				t.Errorf("the state at revision 10: %q, want %q", got, tt.wantExact)
			}
		})
	}
}
