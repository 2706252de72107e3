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

// withoutIndex is the argument of [index.NewTree] for a tree that has no index by a field.
const withoutIndex = false

// noBuffer is the argument of [Snapshot.Page] for a page whose objects get memory of their own.
var noBuffer []*index.Object

// noNumber is the [index.Object].Number of objects that are not compressed, since only package gzip reads the number.
const noNumber = 0

// liveAt is the revision at which the state of a liveCollection was loaded.
const liveAt = 10

// liveCollection returns a collection with one object, ns/a. It has no feed: tests call what a feed would call.
func liveCollection(limits Limits) *Collection {
	s := shared{budget: &budget{}, outage: noOutage, probes: &source.ProbeCounter{}}
	c := newCollection(CollectionKey{}, limits, s, &collectionCounts{})
	state := index.NewTree(withoutIndex)
	state.Set(&index.Object{Key: "ns/a", Revision: liveAt})
	loadState(c, state, liveAt)
	return c
}

// loadState installs a state in a collection, as a load does, and begins a stream.
func loadState(c *Collection, state index.Tree, revision uint64) {
	c.install(&stateLoad{state: state, revision: revision, envelope: samples.Envelope("PodList", "v1"), probe: c.shared.probes.Next()})
	c.setStreaming(true)
}

// probeSentAt returns a collection's next probe, sent at a time.
func probeSentAt(c *Collection, at time.Time) source.Probe {
	return source.Probe{Number: c.shared.probes.Next().Number, Sent: at}
}

// TestRecordRevision: the upstream's revision is read. If it is below the highest one that was seen before the read began,
// recordRevision returns errOtherTimeline: etcd may have been restored from a backup. It accepts any other revision.
func TestRecordRevision(t *testing.T) {
	const unixNanos = 1_764_000_000_000_000_000 // some storages use the time as the revision
	for name, tt := range map[string]struct {
		revision  uint64 // the revision that is read; the highest one seen before is liveAt
		reached   uint64 // the revision that the stream reaches while it is read
		wantError bool
	}{
		"below the highest revision before the read": {revision: liveAt - 1, reached: liveAt, wantError: true},
		"far above": {revision: unixNanos, reached: liveAt},
		"below a revision that was reached in the read": {revision: liveAt + 5, reached: liveAt + 10},
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

// TestWaitsAreBounded: NotOlderThan, Exact and StateToWatch of a revision that the feed has not reached wait for Limits.Wait,
// and request a probe.
func TestWaitsAreBounded(t *testing.T) {
	const wait, moment = time.Second, 50 * time.Millisecond
	const gapless = true
	for name, tt := range map[string]struct {
		revision uint64 // the client asks for it; the feed has reached liveAt
		// What happens a moment after the client has asked. In the other cases, nothing happens.
		reachedLater uint64 // the feed reaches this revision; 0: none
		clientLeaves bool

		wantWait        time.Duration
		wantProbe       bool          // a probe must be requested
		wantUnavailable reason.Reason // None: there is a state
	}{
		"the revision is reached": {revision: liveAt},
		"the revision is not reached": {
			revision: liveAt + 1,
			wantWait: wait, wantProbe: true, wantUnavailable: reason.NotProven,
		},
		"the revision is reached a moment later": {
			revision: liveAt + 1, reachedLater: liveAt + 2,
			wantWait: moment,
		},
		"the revision is not reached, and the client leaves": {
			revision: liveAt + 1, clientLeaves: true,
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
				time.AfterFunc(moment, func() {
					if tt.reachedLater > 0 {
						_ = c.applyBookmark(tt.reachedLater)
					}
					if tt.clientLeaves {
						leave()
					}
				})
				askedAt := time.Now()
				if _, unavailable := ask(c, ctx, tt.revision); unavailable != tt.wantUnavailable {
					t.Errorf("got reason %q, want %q", unavailable, tt.wantUnavailable)
				}
				if took := time.Since(askedAt); took != tt.wantWait {
					t.Errorf("waited for %v, want %v", took, tt.wantWait)
				}
				if tt.wantProbe && len(c.probeRequests) == 0 {
					t.Error("no probe is requested")
				}
			})
		}
	}
}

// TestValidity: a client's answer is made from a Snapshot, which is taken once. WhyNot returns the reason why the answer must
// not be given any more; None if it may be.
func TestValidity(t *testing.T) {
	newer := stateChange{kind: wire.Modified, key: "ns/a", revision: liveAt + 1, object: &index.Object{Key: "ns/a", Revision: liveAt + 1}}
	for name, tt := range map[string]struct {
		change     func(*Collection) // what happens after the two Snapshots were taken
		wantNewest reason.Reason     // why the Snapshot of the newest state is no longer valid
		wantExact  reason.Reason     // why the Snapshot of the state at revision liveAt is no longer valid
	}{
		"an object changes": {change: func(c *Collection) { _ = c.applyChange(newer) }},
		"the state is as old as the staleness bound": {
			change: func(*Collection) { time.Sleep(time.Minute) }, wantNewest: reason.Stale,
		},
		"the state is just newer than the staleness bound": {change: func(*Collection) { time.Sleep(time.Minute - time.Nanosecond) }},
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
				loadState(c, index.NewTree(withoutIndex), liveAt)
				c.drop(reason.Form)
			},
			wantNewest: reason.Warming, wantExact: reason.Warming,
		},
		"another state is loaded": {
			change:     func(c *Collection) { loadState(c, index.NewTree(withoutIndex), liveAt+1) },
			wantNewest: reason.History, wantExact: reason.History,
		},
		"another state is loaded at the same revision": { // it may have other bytes
			change:     func(c *Collection) { loadState(c, index.NewTree(withoutIndex), liveAt) },
			wantNewest: reason.Warming, wantExact: reason.Warming,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
			newest, _ := c.NotOlderThan(t.Context(), anyRevision)
			exact, _ := c.Exact(t.Context(), liveAt)
			tt.change(c)
			if got := c.Validity().WhyNot(newest, time.Now()); got != tt.wantNewest {
				t.Errorf("the newest state: got reason %q, want %q", got, tt.wantNewest)
			}
			if got := c.Validity().WhyNot(exact, time.Now()); got != tt.wantExact {
				t.Errorf("the state at revision %d: got reason %q, want %q", liveAt, got, tt.wantExact)
			}
		})
	}
}

// TestNewestWaitsForAReload: while a load goes on that will replace a known state, AwaitLoad(AnyLoad) waits for it, and
// AwaitLoad(FirstLoad) does not. Lists of the newest state wait, since nothing proves the known state meanwhile.
func TestNewestWaitsForAReload(t *testing.T) {
	for name, endLoad := range map[string]func(*Collection){
		"the load succeeds": func(c *Collection) { loadState(c, index.NewTree(withoutIndex), liveAt+1) },
		"the load fails":    func(c *Collection) { c.setReloadingSince(time.Time{}) },
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Minute, Staleness: time.Hour})
			const limit, loadTime = 10 * time.Second, 2 * time.Second
			const noTime time.Duration = 0
			expectWait := func(when string, kind LoadKind, want reason.Reason, wantWait time.Duration) {
				t.Helper()
				askedAt := time.Now()
				if got := c.AwaitLoad(t.Context(), limit-loadTime, kind); got != want {
					t.Errorf("%s: got reason %q, want %q", when, got, want)
				}
				if took := time.Since(askedAt); took != wantWait {
					t.Errorf("%s: waited for %v, want %v", when, took, wantWait)
				}
			}

			// A load has gone on for two seconds. It ends a second later.
			c.setReloadingSince(time.Now())
			time.Sleep(loadTime)
			expect.Same(t, noTime, c.LoadTimeLeft(limit, FirstLoad))
			expect.Same(t, limit-loadTime, c.LoadTimeLeft(limit, AnyLoad))
			time.AfterFunc(time.Second, func() { endLoad(c) })
			expectWait("a first load", FirstLoad, reason.None, noTime)
			expectWait("any load", AnyLoad, reason.None, time.Second)

			c.retire()
			expectWait("any load of a retired collection", AnyLoad, reason.Warming, noTime) // no load will come
		})
	}
}

// TestSuspended: latest returns no state that is older than the staleness bound by either of two clocks. One clock is not
// enough: the monotonic clock stands still while the machine is suspended, and the wall clock may be set back.
func TestSuspended(t *testing.T) {
	const staleness = 6 * time.Second
	now := time.Now()
	for name, tt := range map[string]struct {
		age             time.Duration // of the state, by the monotonic clock
		moreByWallClock time.Duration // by the wall clock, the state is older by this time
		want            reason.Reason // why there is no state; None: there is one
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
		if _, got := v.latest(moment{at: now, staleness: staleness}, anyRevision); got != tt.want {
			t.Errorf("%s: got reason %q, want %q", name, got, tt.want)
		}
	}
}
