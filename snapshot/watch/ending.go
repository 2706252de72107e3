package watch

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
)

// Ending is the reason why a watcher has ended.
type Ending string

// The reasons why watchers end. A watch always ends between two events.
const (
	// EndTimeout means that the time for which the client asked is over.
	EndTimeout Ending = "timeout"
	// EndLost means that the feed has lost the state, or that the state may be wrong.
	EndLost Ending = "lost"
	// EndBehind means that the history has forgotten the next change that the client should get.
	EndBehind Ending = "behind"
	// EndShutdown means that the process ends.
	EndShutdown Ending = "shutdown"
	// EndGone means that the client has gone, or does not take more bytes.
	EndGone Ending = "gone"
)

// Every watcher always has a deadline, and a planned ending that it gets then. At first these are the end of the client's
// timeout and EndTimeout. To end a watcher early, the broadcaster brings its deadline forward and replaces the ending. Nothing
// moves a deadline back. The phases of a watcher:
//
//	open ── deadline ──► draining ── drainTimeout later ──► drained
//
// A draining watcher delivers the changes that are left, and then gets its ending. After EndTimeout (as at kube-apiserver)
// and EndGone it delivers nothing more: the ending comes at once.
const (
	phaseOpen int32 = iota
	phaseDraining
	phaseDrained
)

const (
	// drainTimeout is the longest time for which a watcher still delivers changes after its deadline.
	drainTimeout = 10 * time.Second
	// minWatchLife is the shortest life of a watcher before the broadcaster ends it: client-go lists again after a
	// watch that ended within a second without an event.
	minWatchLife = time.Second
	// maxEndSpread is the longest time over which the ends of one broadcaster's watchers are spread, however many they are.
	maxEndSpread = 10 * time.Second
)

// End ends all watchers within maxEndSpread, because the state was lost.
func (b *Broadcaster) End() { b.EndWithin(maxEndSpread, EndLost) }

// Abort is like End, but is for published states that may be wrong: the watchers deliver nothing more.
func (b *Broadcaster) Abort() {
	b.aborted.Store(true)
	b.End()
	to := b.published.Load().To
	b.published.Store(&Span{From: to, To: to}) // The old span's memory is free before the last watcher ends.
}

// EndWithin ends all watchers, each at a time of its own: within atMost, or up to minWatchLife later. No new watcher can begin.
func (b *Broadcaster) EndWithin(atMost time.Duration, why Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended && why == EndLost {
		return // The ends are planned already. (A shutdown plans them again, for an earlier time.)
	}
	b.ended = true
	all := make([]*Watcher, 0, b.watchers)
	for _, bucket := range b.buckets {
		all = append(all, bucket...)
	}
	b.bringForwardLocked(all, atMost, why)
}

// endOne ends one watcher within maxEndSpread, unless its end for a lost state is planned already.
func (b *Broadcaster) endOne(w *Watcher, why Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.plannedEnding != EndLost {
		b.bringForwardLocked([]*Watcher{w}, maxEndSpread, why)
	}
}

// bringForwardLocked brings the deadlines of the open watchers forward, to times that are spread over at most atMost. It leaves
// each watcher its minWatchLife, unless atMost is shorter. A deadline that is earlier stays, with its ending.
func (b *Broadcaster) bringForwardLocked(watchers []*Watcher, atMost time.Duration, why Ending) {
	now := time.Now()
	delay, spread := b.pacer.Plan(now, len(watchers), atMost)
	for _, w := range watchers {
		if w.phase.Load() != phaseOpen { // The watcher is ending already, and delivers the changes that are left.
			continue
		}
		at := now.Add(delay)
		earliest := w.startedAt.Add(minWatchLife)
		if at.Before(earliest) && atMost >= minWatchLife {
			at = earliest
		}
		at = at.Add(rand.N(spread)) // #nosec G404 -- no secret
		if at.Before(w.deadline) {
			w.deadline = at
			w.plannedEnding = why
		}
		w.setTimerLocked(w.nextWakeLocked())
	}
}

// dueEnding returns EndGone if ctx is done, the planned ending if the deadline has passed, and "" before.
func (w *Watcher) dueEnding(ctx context.Context) Ending {
	switch {
	case ctx.Err() != nil:
		return EndGone
	case w.phase.Load() == phaseOpen:
		return ""
	}
	w.broadcaster.mu.Lock()
	defer w.broadcaster.mu.Unlock()
	return w.plannedEnding
}

// immediateEnding is dueEnding, but returns "" while a draining watcher may deliver the changes that are left.
func (w *Watcher) immediateEnding(ctx context.Context) Ending {
	isDrained := w.phase.Load() == phaseDrained
	if end := w.dueEnding(ctx); isDrained || end == EndGone || end == EndTimeout {
		return end
	}
	return ""
}

// AwaitEnd blocks a watcher that cannot go on, because of why, until it is its turn to end: the clients must not all come back
// at once. It delivers nothing meanwhile, and returns why, or the ending that was planned before.
func (w *Watcher) AwaitEnd(ctx context.Context, why Ending) Ending {
	if why == EndTimeout || why == EndGone {
		return why
	}
	if w.phase.Load() == phaseOpen { // Otherwise its turn has come already, and why stays.
		w.broadcaster.endOne(w, why)
		for why = w.dueEnding(ctx); why == ""; why = w.dueEnding(ctx) {
			w.Wait(ctx)
		}
	}
	// The deadline may be earlier than minWatchLife: it may have been planned before InitialSent, which sets startedAt anew.
	clock.Sleep(ctx, time.Until(w.startedAt.Add(minWatchLife)))
	return why
}
