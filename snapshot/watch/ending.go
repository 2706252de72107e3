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

// The phases of a watcher:
//
//	open ── deadline ──► draining ── drainTimeout later ──► drained
//
// The deadline is the end of the client's timeout, or earlier if the broadcaster ends its watchers. While a watcher is
// draining, Take still returns the changes that are left, and then the ending. Once the watcher is drained, or if the deadline
// was the client's timeout, Take returns the ending at once.
const (
	phaseOpen int32 = iota
	phaseDraining
	phaseDrained
)

// drainTimeout is the longest time for which a watcher still delivers changes after its deadline.
const drainTimeout = 10 * time.Second

// End ends all watchers within maxEndSpread, because the state was lost.
func (b *Broadcaster) End() { b.EndWithin(maxEndSpread, EndLost) }

// Abort is like End, but is for published states that may be wrong: the watchers deliver nothing more.
func (b *Broadcaster) Abort() {
	b.aborted.Store(true)
	b.End()
	to := b.published.Load().To
	b.published.Store(&Span{From: to, To: to}) // The old span's memory is free before the last watcher ends.
}

// EndWithin gives each watcher a deadline of its own, within a time from now. Until its deadline, a watcher goes on as
// before. No new watcher can begin.
func (b *Broadcaster) EndWithin(within time.Duration, why Ending) {
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
	b.planEndsLocked(all, within, why)
}

// planEnd gives one watcher a deadline within maxEndSpread, unless its end for a lost state is planned already.
func (b *Broadcaster) planEnd(w *Watcher, why Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.plannedEnding != EndLost {
		b.planEndsLocked([]*Watcher{w}, maxEndSpread, why)
	}
}

// planEndsLocked gives each watcher a deadline of its own, within a time from now. A watcher with an earlier deadline keeps
// it.
func (b *Broadcaster) planEndsLocked(watchers []*Watcher, within time.Duration, why Ending) {
	now := time.Now()
	delay, spread := b.pacer.Plan(now, len(watchers), within)
	for _, w := range watchers {
		if w.phase.Load() != phaseOpen { // The watcher is ending already, and delivers the changes that are left.
			continue
		}
		at := now.Add(delay)
		earliest := w.startedAt.Add(minWatchLife)
		if at.Before(earliest) && within >= minWatchLife { // At a shutdown there may be less time than minWatchLife.
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

// AwaitEnd is called for a watcher that must end because of why, and blocks until the watcher may. Nothing is delivered
// meanwhile. AwaitEnd returns why, or the reason of an earlier deadline. For EndTimeout and EndGone it returns at once. For
// any other reason each watcher ends at a moment of its own, and not before minWatchLife is over.
func (w *Watcher) AwaitEnd(ctx context.Context, why Ending) Ending {
	if why == EndTimeout || why == EndGone {
		return why
	}
	if w.phase.Load() == phaseOpen {
		w.broadcaster.planEnd(w, why)
		for why = w.dueEnding(ctx); why == ""; why = w.dueEnding(ctx) {
			w.Wait(ctx)
		}
	}
	clock.Sleep(ctx, time.Until(w.startedAt.Add(minWatchLife)))
	return why
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

// immediateEnding returns the ending if nothing may be delivered any more, not even the changes that are left, and "" if
// something may. Like kube-apiserver, it leaves no time for those changes after the client's timeout.
func (w *Watcher) immediateEnding(ctx context.Context) Ending {
	isDrained := w.phase.Load() == phaseDrained
	if end := w.dueEnding(ctx); isDrained || end == EndGone || end == EndTimeout {
		return end
	}
	return ""
}
