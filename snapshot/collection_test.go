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

// withoutIndex is the argument of index.NewTree for a tree that has no index by a field.
const withoutIndex = false

// liveCollection returns a collection with one object, ns/a, at revision 10.
func liveCollection(limits Limits) *Collection {
	s := shared{budget: &budget{}, outage: noOutage, probes: &source.ProbeCounter{}}
	c := newCollection(CollectionKey{}, limits, s, &collectionCounts{})
	state := index.NewTree(withoutIndex)
	state.Set(&index.Object{Key: "ns/a", Revision: 10})
	loadState(c, state, 10)
	return c
}

// loadState lets a collection begin with a state whose stream is read.
func loadState(c *Collection, state index.Tree, revision uint64) {
	c.install(&stateLoad{state: state, revision: revision, envelope: samples.Envelope("PodList", "v1"), probe: c.shared.probes.Next()})
	c.setStreaming(true)
}

// probeSentAt returns a collection's next probe, sent at a time.
func probeSentAt(c *Collection, at time.Time) source.Probe {
	return source.Probe{Number: c.shared.probes.Next().Number, Sent: at}
}

// TestRecordRevision: recordRevision returns errOtherTimeline for a revision below the highest one from before the read,
// and accepts any other.
func TestRecordRevision(t *testing.T) {
	const unixNanos = 1_764_000_000_000_000_000 // some storages use the time as the revision
	for name, tt := range map[string]struct {
		revision  uint64 // the revision that is read; the highest one seen before is 10
		reached   uint64 // the revision that the stream reaches during the read
		wantError bool
	}{
		"below the highest revision":             {revision: 9, reached: 10, wantError: true},
		"far above":                              {revision: unixNanos, reached: 10},
		"below what was reached during the read": {revision: 15, reached: 20},
	} {
		t.Run(name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
			highestBefore := c.highestSeenRevision()
			expect.NoError(t, c.applyBookmark(tt.reached))
			err := c.recordRevision(tt.revision, highestBefore)
			if got := errors.Is(err, errOtherTimeline); got != tt.wantError {
				t.Errorf("got error %v, want errOtherTimeline: %t", err, tt.wantError)
			}
		})
	}
}

// TestWaitsAreBounded: NotOlderThan, Exact and StateToWatch of a revision that the feed has not reached wait for Limits.Wait, and
// request a probe.
func TestWaitsAreBounded(t *testing.T) {
	const wait, moment = time.Second, 50 * time.Millisecond
	const gapless = true
	for name, tt := range map[string]struct {
		revision        uint64
		afterAMoment    func(c *Collection, leave func()) // nil: nothing happens
		wantWait        time.Duration
		wantProbe       bool // a probe must be requested
		wantUnavailable reason.Reason
	}{
		"the interval's end": {revision: 10},
		"the next revision":  {revision: 11, wantWait: wait, wantProbe: true, wantUnavailable: reason.NotProven},
		"the next revision, which the feed reaches": {
			revision: 11, afterAMoment: func(c *Collection, _ func()) { _ = c.applyBookmark(12) }, wantWait: moment,
		},
		"the next revision, and the client goes away": {
			revision: 11, afterAMoment: func(_ *Collection, leave func()) { leave() },
			wantWait: moment, wantProbe: true, wantUnavailable: reason.NotProven,
		},
		"the highest possible revision": {
			revision: 1<<63 - 1, wantWait: wait, wantProbe: true, wantUnavailable: reason.NotProven,
		},
	} {
		for kind, ask := range map[string]func(*Collection, context.Context, uint64) (Snapshot, reason.Reason){
			"NotOlderThan": (*Collection).NotOlderThan,
			"Exact":        (*Collection).Exact,
			"StateToWatch": func(c *Collection, ctx context.Context, revision uint64) (Snapshot, reason.Reason) {
				return c.StateToWatch(ctx, revision, gapless, wait)
			},
		} {
			proxytest.Bubble(t, name+", "+kind, func(t *testing.T) {
				c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute, Wait: wait})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if tt.afterAMoment != nil {
					time.AfterFunc(moment, func() { tt.afterAMoment(c, leave) })
				}
				asked := time.Now()
				if _, unavailable := ask(c, ctx, tt.revision); unavailable != tt.wantUnavailable {
					t.Errorf("got reason %q, want %q", unavailable, tt.wantUnavailable)
				}
				if took := time.Since(asked); took != tt.wantWait {
					t.Errorf("waited for %v, want %v", took, tt.wantWait)
				}
				if tt.wantProbe && len(c.probeRequests) == 0 {
					t.Error("no probe is requested")
				}
			})
		}
	}
}

// TestValidity: WhyNot returns the reason why a Snapshot that was taken earlier must no longer be answered; None if it may be.
func TestValidity(t *testing.T) {
	newer := stateChange{kind: wire.Modified, key: "ns/a", revision: 11, object: &index.Object{Key: "ns/a", Revision: 11}}
	for name, tt := range map[string]struct {
		change     func(*Collection)
		wantNewest reason.Reason // why the newest state is no longer valid
		wantExact  reason.Reason // why the state at revision 10 is no longer valid
	}{
		"an object changes": {change: func(c *Collection) { _ = c.applyChange(newer) }},
		"the state is as old as the staleness bound": {
			change: func(*Collection) { time.Sleep(time.Minute) }, wantNewest: reason.Stale,
		},
		"the state is just newer than the staleness bound": {change: func(*Collection) { time.Sleep(time.Minute - 1) }},
		"the stream ends": {change: func(c *Collection) { c.setStreaming(false) }},
		"the state is dropped": {
			change: func(c *Collection) { c.drop(reason.Warming) }, wantNewest: reason.Warming, wantExact: reason.Warming,
		},
		"the collection is retired": {
			change: func(c *Collection) { c.retire() }, wantNewest: reason.Warming, wantExact: reason.Warming,
		},
		"the collection is retired, and its feed goes on": {
			change: func(c *Collection) {
				c.retire()
				loadState(c, index.NewTree(withoutIndex), 10)
				c.drop(reason.Form)
			},
			wantNewest: reason.Warming, wantExact: reason.Warming,
		},
		"another state is loaded": {
			change:     func(c *Collection) { loadState(c, index.NewTree(withoutIndex), 99) },
			wantNewest: reason.History, wantExact: reason.History,
		},
		"another state is loaded at the same revision": { // it may have other bytes
			change:     func(c *Collection) { loadState(c, index.NewTree(withoutIndex), 10) },
			wantNewest: reason.Warming, wantExact: reason.Warming,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
			newest, _ := c.NotOlderThan(t.Context(), 0)
			exact, _ := c.Exact(t.Context(), 10)
			tt.change(c)
			if got := c.Validity().WhyNot(newest, time.Now()); got != tt.wantNewest {
				t.Errorf("the newest state: got reason %q, want %q", got, tt.wantNewest)
			}
			if got := c.Validity().WhyNot(exact, time.Now()); got != tt.wantExact {
				t.Errorf("the state at revision 10: got reason %q, want %q", got, tt.wantExact)
			}
		})
	}
}

// TestNewestWaitsForALoadBeside: while a state is loaded beside the known one, AwaitLoad waits for AnyLoad but not for
// FirstLoad.
func TestNewestWaitsForALoadBeside(t *testing.T) {
	for name, endLoad := range map[string]func(*Collection){
		"the load succeeds": func(c *Collection) { loadState(c, index.NewTree(withoutIndex), 20) },
		"the load fails":    func(c *Collection) { c.setReloadingSince(time.Time{}) },
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Minute, Staleness: time.Hour})
			const maxWait, loading = 10 * time.Second, 2 * time.Second
			c.setReloadingSince(time.Now())
			time.Sleep(loading)
			expect.Same(t, time.Duration(0), c.LoadTimeLeft(maxWait, FirstLoad))
			expect.Same(t, maxWait-loading, c.LoadTimeLeft(maxWait, AnyLoad))
			expectWait := func(kind LoadKind, want reason.Reason, wantWait time.Duration) {
				t.Helper()
				asked := time.Now()
				if got := c.AwaitLoad(t.Context(), maxWait-loading, kind); got != want {
					t.Errorf("got reason %q, want %q", got, want)
				}
				if took := time.Since(asked); took != wantWait {
					t.Errorf("waited for %v, want %v", took, wantWait)
				}
			}
			time.AfterFunc(time.Second, func() { endLoad(c) })
			expectWait(FirstLoad, reason.None, 0)
			expectWait(AnyLoad, reason.None, time.Second)
			c.retire()
			expectWait(AnyLoad, reason.Warming, 0) // no load will come
		})
	}
}

// TestSuspended: latest returns no state that is older than the bound by either clock: the monotonic clock stands still while
// the machine is suspended, and the wall clock may be set back.
func TestSuspended(t *testing.T) {
	const staleness = 6 * time.Second
	now := time.Now()
	for name, tt := range map[string]struct {
		age             time.Duration // by the monotonic clock
		moreByWallClock time.Duration // added to the age by the wall clock
		want            reason.Reason
	}{
		"the machine was suspended for an hour": {
			age: time.Second, moreByWallClock: time.Hour, want: reason.Stale,
		},
		"an old state, and the wall clock was set back an hour": {
			age: time.Minute, moreByWallClock: -time.Hour, want: reason.Stale,
		},
		"a new state, and the wall clock was set back an hour": {
			age: time.Second, moreByWallClock: -time.Hour, want: reason.None,
		},
	} {
		sent := proxytest.EarlierByTheWallClock(now.Add(-tt.age), tt.moreByWallClock)
		v := &View{unavailable: reason.None, provenBy: source.Probe{Sent: sent}}
		if _, got := v.latest(moment{at: now, staleness: staleness}, 0); got != tt.want {
			t.Errorf("%s: got reason %q, want %q", name, got, tt.want)
		}
	}
}
