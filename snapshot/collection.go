package snapshot

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/budget"
	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/pace"
)

// Limits bound what a collection keeps and believes.
type Limits struct {
	// History is how far back states are kept.
	History time.Duration
	// Staleness is the age from which on the newest state is not given any more: whatever is given
	// holds all that the upstream had that long before.
	Staleness time.Duration
	// Wait is how long a request waits for the feed to reach its revision.
	Wait time.Duration
}

// Collection is one resource in one representation, and what is known of it. Its methods are
// safe for concurrent use; reading takes no lock.
type Collection struct {
	resource Resource
	limits   Limits
	budget   *budget.Bound

	view atomic.Pointer[View]
	// lastUse is when a request last asked, in Unix nanoseconds.
	lastUse atomic.Int64
	// life counts what becomes of the span.
	life *spanLife
	// demand tells the feed that somebody waits for a revision it has not reached.
	demand chan struct{}
	// inquiries counts those that were sent. wished is the number of the one that somebody waits
	// for who wants the newest state, and wishes tells the feed that it has changed.
	inquiries, wished atomic.Uint64
	wishes            chan struct{}
	// outlook is a copy of the feed's, and costs what lists cost where they are forwarded: they say
	// whether it is worth to wait for that.
	outlook atomic.Pointer[freshness.Machine]
	costs   pace.Costs

	// objects is the number of the newest object, beginning with a number that is this
	// collection's alone. It is the feed's.
	objects uint64

	// mu is held by the writers of what follows: the feed and the janitor.
	mu sync.Mutex
	// retired is set for ever when the collection is not to know anything any more.
	retired bool
	// epochs are those of what the collection knows.
	epochs Epochs
	// highest is the highest revision ever heard of from this storage.
	highest uint64
	// goals are where the upstream is known to have been and the live span is not yet, in order.
	goals []goal
	// closed is when the last span was closed.
	closed time.Time
	// opened is the revision of the state that opened the live span.
	opened uint64
	// last is the newest change of the live span; zero if there was none.
	last seam
	// versions is the writers' handle; views hold copies.
	versions index.History
	// accounts are the bytes of each span of the current view.
	accounts []int64
	// marks remember which revision was reached when, so that history can be cut by time.
	marks []mark
}

func newCollection(r Resource, limits Limits, b *budget.Bound) *Collection {
	c := &Collection{
		resource: r,
		limits:   limits,
		budget:   b,
		life:     &spanLife{counts: &spanCounts{}},
		demand:   make(chan struct{}, 1),
		wishes:   make(chan struct{}, 1),
	}
	c.Touch()
	c.publish(freshness.Machine{})
	c.view.Store(&View{absence: reason.Warming, next: make(chan struct{}), newer: make(chan struct{})})
	return c
}

// stand makes the collection begin on the ground as it is after so many invalidations.
func (c *Collection) stand(epoch uint64) {
	for g := range c.epochs {
		c.epochs[g] = epoch
	}
	c.view.Store(&View{absence: reason.Warming, epochs: c.epochs, next: make(chan struct{}), newer: make(chan struct{})})
}

// Latest returns the newest state, at revision atLeast or later: what Any (atLeast 0) and
// NotOlderThan ask for. It waits a bounded time for the feed to get there.
func (c *Collection) Latest(ctx context.Context, atLeast uint64) (Snapshot, reason.Reason) {
	return c.reach(ctx, func(v *View) (Snapshot, reason.Reason) {
		return v.latest(time.Now(), c.limits.Staleness, atLeast)
	})
}

// Exact returns the state at revision rev: what Exact and continuations ask for. It waits a
// bounded time for the feed to get there.
func (c *Collection) Exact(ctx context.Context, rev uint64) (Snapshot, reason.Reason) {
	return c.reach(ctx, func(v *View) (Snapshot, reason.Reason) { return v.exact(rev) })
}

// reach asks the view and, while the answer is Ahead, the views that follow, for a bounded
// time. Then it tells the feed that a newer revision is wanted.
func (c *Collection) reach(ctx context.Context, ask func(*View) (Snapshot, reason.Reason)) (Snapshot, reason.Reason) {
	c.Touch()
	snap, absence, timedOut := c.await(ctx, c.limits.Wait, reason.Ahead, (*View).replaced, ask)
	if timedOut {
		c.want()
	}
	return snap, absence
}

// NoLatest says why Latest would come to nothing, even after its wait; None if it may come to
// something. It does not wait, and is no use of the collection.
func (c *Collection) NoLatest(atLeast uint64) reason.Reason {
	v := c.view.Load()
	_, absence := v.latest(time.Now(), c.limits.Staleness, atLeast)
	return v.unlessNear(absence, atLeast)
}

// NoExact is NoLatest for Exact.
func (c *Collection) NoExact(rev uint64) reason.Reason {
	v := c.view.Load()
	_, absence := v.exact(rev)
	return v.unlessNear(absence, rev)
}

// await asks the view and, while the answer is notYet, those that follow, at most for a time.
// changes is what is closed when another view may have another answer.
func (c *Collection) await(ctx context.Context, atMost time.Duration, notYet reason.Reason,
	changes func(*View) <-chan struct{}, ask func(*View) (Snapshot, reason.Reason),
) (snap Snapshot, why reason.Reason, timedOut bool) {
	v := c.view.Load()
	if snap, why = ask(v); why != notYet {
		return snap, why, false
	}
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for {
		select {
		case <-changes(v):
			v = c.view.Load()
			if snap, why = ask(v); why != notYet {
				return snap, why, false
			}
		case <-timer.C:
			return snap, why, true
		case <-ctx.Done():
			return snap, why, false
		}
	}
}

// replaced is closed when there is another view.
func (v *View) replaced() <-chan struct{} { return v.next }

// outdated is closed when there is a view that was heard later, or that has no state.
func (v *View) outdated() <-chan struct{} { return v.newer }

// continues says whether a page follows the one that q asks for of the newest state, by the last
// that is known of it: however old that is, it is wrong at the margin only.
func (c *Collection) continues(q index.Query) bool {
	v := c.view.Load()
	if v.absence != reason.None || !v.frame.Selects(q.Fields) {
		return false
	}
	newest := Snapshot{Revision: v.to(), Frame: v.frame, tree: v.newest}
	// What needs no selector is counted, and looked at only if there is more than one page can
	// hold.
	if q.Limit <= 0 || newest.tree.Count(q.Scope.Prefix()+q.Start, q.Scope.End()) <= q.Limit {
		return false
	}
	return newest.Page(q, nil).Next != ""
}

// want tells the feed that somebody waits for a newer revision, or is about to.
func (c *Collection) want() {
	select {
	case c.demand <- struct{}{}:
	default: // it knows already
	}
}

// Touch notes a use of the collection.
func (c *Collection) Touch() { c.lastUse.Store(time.Now().UnixNano()) }

// idle is how long no request has asked for the collection.
func (c *Collection) idle(now time.Time) time.Duration {
	return now.Sub(time.Unix(0, c.lastUse.Load()))
}

// AwaitFirst waits for a newest state, at most for a time, and returns why there is none.
func (c *Collection) AwaitFirst(ctx context.Context, atMost time.Duration) reason.Reason {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for {
		v := c.view.Load()
		if v.absence == reason.None {
			return reason.None
		}
		select {
		case <-v.newer:
		case <-timer.C:
			return v.absence
		case <-ctx.Done():
			return v.absence
		}
	}
}
