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
// Each watcher has a deadline and a plannedEnding, with which it ends after the deadline. At first the deadline is the end of
// the client's timeout, and the planned ending is EndTimeout. To end a watcher early, the broadcaster sets an earlier
// deadline and another planned ending. A deadline never becomes later.
//
// A draining watcher delivers the changes that are left, and then ends. With EndTimeout (as at kube-apiserver) and EndGone it
// delivers nothing more, and ends at once.
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

// Abort is End for published states that may be wrong: the watchers deliver nothing more.
func (b *Broadcaster) Abort() {
	b.aborted.Store(true)
	b.End()
	to := b.published.Load().To
	b.published.Store(&Span{From: to, To: to}) // The old span's memory is free before the last watcher ends.
}

// EndWithin ends all watchers within atMost, at different times, so that their clients do not all come back at once. A watcher
// that has just begun may end up to minWatchLife (1 s) later than atMost. No new watcher can begin.
func (b *Broadcaster) EndWithin(atMost time.Duration, ending Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed && ending == EndLost {
		return // The ends are planned already. Only a shutdown plans them again, for an earlier time.
	}
	b.closed = true
	all := make([]*Watcher, 0, b.watchers)
	for _, bucket := range b.buckets {
		all = append(all, bucket...)
	}
	b.planEndsLocked(all, atMost, ending)
}

// endOne ends one watcher within maxEndSpread. If an end with EndLost is planned already, endOne does nothing: the watcher
// keeps the deadline that it has.
func (b *Broadcaster) endOne(w *Watcher, ending Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.plannedEnding != EndLost {
		b.planEndsLocked([]*Watcher{w}, maxEndSpread, ending)
	}
}

// planEndsLocked gives each open watcher an earlier deadline, at a random time within atMost, and another planned ending. The
// pacer chooses the range of these times. There are two exceptions:
//
//   - A watcher that is younger than minWatchLife (1 s) may reach this age first, unless atMost is shorter than minWatchLife.
//   - A watcher whose deadline is already earlier than the new one keeps its deadline and its ending.
func (b *Broadcaster) planEndsLocked(watchers []*Watcher, atMost time.Duration, ending Ending) {
	now := time.Now()
	delay, spread := b.pacer.Plan(now, len(watchers), atMost)
	for _, w := range watchers {
		if w.phase.Load() != phaseOpen { // The watcher is ending already, and delivers the changes that are left.
			continue
		}
		newDeadline := now.Add(delay)
		earliest := w.startedAt.Add(minWatchLife)
		if newDeadline.Before(earliest) && atMost >= minWatchLife {
			newDeadline = earliest
		}
		newDeadline = newDeadline.Add(rand.N(spread)) // #nosec G404 -- no secret
		if newDeadline.Before(w.deadline) {
			w.deadline = newDeadline
			w.plannedEnding = ending
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

// immediateEnding returns dueEnding if the watcher may deliver nothing more, and "" if it may:
//
//	dueEnding            phase     immediateEnding
//	"" (none yet)        open      ""
//	EndGone, EndTimeout  any       the due ending
//	any other            draining  "", since the changes that are left are delivered first
//	any other            drained   the due ending
func (w *Watcher) immediateEnding(ctx context.Context) Ending {
	isDrained := w.phase.Load() == phaseDrained
	ending := w.dueEnding(ctx)
	if isDrained || ending == EndGone || ending == EndTimeout {
		return ending
	}
	return ""
}

// AwaitEnd plans an early deadline for a watcher that cannot go on, and blocks until it has come, since clients must not all
// come back at once. ending is the reason why the watcher cannot go on. AwaitEnd returns this ending, or another one that was
// planned for an earlier time. For EndTimeout and EndGone, it returns at once.
func (w *Watcher) AwaitEnd(ctx context.Context, ending Ending) Ending {
	if ending == EndTimeout || ending == EndGone {
		return ending
	}
	if w.phase.Load() == phaseOpen { // In the other phases, the deadline has passed already.
		w.broadcaster.endOne(w, ending)
		ending = w.dueEnding(ctx)
		for ending == "" {
			w.Wait(ctx)
			ending = w.dueEnding(ctx)
		}
	}
	// The deadline may have been too early for minWatchLife: it was planned for a shutdown, or while the client still read the
	// initial state, and InitialSent has set startedAt to a later time since.
	clock.Sleep(ctx, time.Until(w.startedAt.Add(minWatchLife)))
	return ending
}
