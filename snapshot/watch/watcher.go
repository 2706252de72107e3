package watch

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
)

// Watcher is one client's position in the history. It is for one goroutine, that of the client's watch.
//
// For example, a watch after revision 10, whose filter selects the changes at 11 and 14. The history is at 12 when the
// watch begins:
//
//	history at  woken        due  Take returns      delivered
//	12          at first     11   the change at 11  12
//	13          no           0                      12
//	14          by a change  14   the change at 14  14
//	20          by a timer   0    a bookmark at 20  14
//
// The bookmark may say 20: changes up to 20 were dispatched, and this watcher was woken for none of them.
//
// A watcher ends in phases:
//
//	open ── deadline ──► draining ── drainTimeout later ──► drained
//
// The deadline is the timeout that the client asked for, or comes earlier if the broadcaster ends its watchers. While the
// watcher is draining, Take still returns what is left, and then the ending. After a timeout, or once the watcher is
// drained, Take returns the ending at once.
type Watcher struct {
	broadcaster *Broadcaster
	filter      index.Filter
	after       uint64
	bookmarks   bool        // the client wants bookmarks
	defined     func() bool // [Options].Defined
	// delivered is the revision up to which the client has every change that its filter selects.
	delivered uint64
	// heldSince is the time since which Take holds events back because defined returns false; zero if it does not.
	heldSince time.Time
	// ended is the ending, once Take has returned the last events; empty before.
	ended Ending

	// due is a lower bound of the revisions of the changes that are left to deliver; 0 if none is left.
	due atomic.Uint64
	// bookmarkDue reports whether a bookmark is left to deliver.
	bookmarkDue atomic.Bool
	phase       atomic.Int32 // phaseOpen, phaseDraining or phaseDrained
	wake        chan struct{}

	// The broadcaster's mu guards the fields below. Only the watch's own goroutine writes startedAt, so it may read
	// startedAt without mu.
	bucket        index.Bucket
	position      int       // the index in the bucket
	startedAt     time.Time // when the watch began, or the client got the state with which it begins
	deadline      time.Time
	plannedEnding Ending      // the ending at the deadline
	bookmarkAt    time.Time   // the time of the next bookmark; zero if there will be none
	wakeAt        time.Time   // the time for which the timer is set
	timer         *time.Timer // wakes the watcher for its next phase or a bookmark; nil once the watcher was removed
}

// The phases of a watcher.
const (
	phaseOpen int32 = iota
	phaseDraining
	phaseDrained
)

// Options say what a client asks for.
type Options struct {
	// After is the revision after which the client gets changes.
	After uint64
	// Filter selects the objects whose changes it gets.
	Filter index.Filter
	// Bookmarks reports whether it gets bookmarks.
	Bookmarks bool
	// Timeout is the duration of its watch.
	Timeout time.Duration
	// Defined reports whether the resource is still served and defined as it was when the client came. It must give the
	// same result for all clients of a broadcaster, and must not block. A change is delivered only if Defined was true
	// after the change was published. The watcher keeps Defined until it is closed.
	Defined func() bool
}

// Ending is the reason why a watcher has ended.
type Ending string

// The reasons why watchers end. Each ends in order, between two events.
const (
	// EndTimeout is the timeout that the client had asked for.
	EndTimeout Ending = "timeout"
	// EndLost means that the feed has lost the state, or that the state may be wrong.
	EndLost Ending = "lost"
	// EndBehind means that the history has forgotten the next change that the client should get.
	EndBehind Ending = "behind"
	// EndShutdown means that the process ends.
	EndShutdown Ending = "shutdown"
	// EndGone means that the client has gone, or cannot be written to.
	EndGone Ending = "gone"
)

const (
	// A watch that asks for bookmarks gets one each bookmarkInterval, or up to bookmarkJitter later, and one
	// lastBookmarkLead before its timeout (k8s.io/apiserver, storage/cacher).
	bookmarkInterval = time.Minute
	bookmarkJitter   = 1300 * time.Millisecond
	lastBookmarkLead = 2 * time.Second

	// drainTimeout is the time for which a watcher delivers what is left after its deadline.
	drainTimeout = 10 * time.Second

	// definedTimeout is the time for which a watcher holds events back while [Options].Defined is false; then it ends.
	// Whether a resource is defined is learned from an API server, and a busy one keeps requests in its queue for less
	// than this.
	definedTimeout = 30 * time.Second
	// initialDefinedTimeout is the same for initial events, which hold memory for their bytes.
	initialDefinedTimeout = 3 * time.Second
	// definedPollInterval is the time between two calls of Defined meanwhile.
	definedPollInterval = 100 * time.Millisecond
	// deliveryPollInterval is the interval at which [Broadcaster.AwaitDelivered] looks.
	deliveryPollInterval = 10 * time.Millisecond

	// initialStateTimeout is the time that a client has to read the state with which its watch begins, if the history
	// forgets meanwhile the changes that follow. Only a client that has the whole state can resume elsewhere; but one
	// that reads slowly holds memory.
	initialStateTimeout = 30 * time.Second
)

// Watch returns a watcher, which must be closed. It returns nil if the broadcaster has ended, or if the
// span does not have all changes after o.After, or does not reach o.After.
func (b *Broadcaster) Watch(o Options) *Watcher {
	now := time.Now()
	w := &Watcher{
		broadcaster:   b,
		filter:        o.Filter,
		after:         o.After,
		bookmarks:     o.Bookmarks,
		defined:       o.Defined,
		delivered:     o.After,
		wake:          make(chan struct{}, 1),
		bucket:        o.Filter.Bucket(),
		startedAt:     now,
		deadline:      now.Add(o.Timeout),
		plannedEnding: EndTimeout,
	}
	if o.Bookmarks {
		w.bookmarkAt = nextBookmark(now, w.deadline)
	}
	w.due.Store(o.After + 1)
	if span := b.published.Load(); o.After < span.RetainedAfter() || o.After > span.To || !b.add(w) {
		return nil
	}
	return w
}

// Wait waits until there may be something to deliver, or ctx ends.
func (w *Watcher) Wait(ctx context.Context) {
	var poll <-chan time.Time
	if !w.heldSince.IsZero() {
		poll = time.After(definedPollInterval)
	}
	select {
	case <-w.wake:
	case <-poll:
	case <-ctx.Done():
	}
}

// Take replaces the events in b with those that the client must get now. If there are none and no ending, there is
// nothing to deliver before [Watcher.Wait] returns. After an ending the client must get nothing more. The ending is
// [EndGone] if ctx is done. The last events come without the ending, which the next Take returns; b.More says so.
func (w *Watcher) Take(ctx context.Context, b *Batch) Ending {
	b.Reset()
	if end := cmp.Or(w.ended, w.endingNow(ctx)); end != "" {
		return end
	}
	isDraining := w.phase.Load() != phaseOpen
	// The order matters: dispatched is read before due, and due before published. So each change up to dispatched that
	// the client must get was delivered, or is in the span, at or after due.
	dispatched := w.broadcaster.dispatched.Load()
	first := w.due.Swap(0)
	span := w.broadcaster.published.Load()
	// With a last bookmark the client can resume at the newest revision, which other replicas have in memory, too.
	needsBookmark := w.bookmarkDue.Load() || (isDraining && w.bookmarks)
	if (first != 0 || needsBookmark) && !w.broadcaster.confirm(span.To, w.defined) {
		return w.hold(ctx, first)
	}
	w.heldSince = time.Time{}
	var more bool
	var failure Ending
	if first != 0 {
		more, failure = w.replay(b, span, first)
	}
	if needsBookmark && !more {
		w.bookmarkDue.Store(false)
		w.addBookmark(b, max(w.delivered, dispatched))
	}
	// This is read last: it may have become true meanwhile, and then what was replayed is in doubt.
	if w.broadcaster.aborted.Load() {
		b.Reset()
		return w.endingPastDeadline(ctx) // Abort has planned the deadline
	}
	if failure != "" {
		b.Reset()
		return failure
	}
	if isDraining && !more {
		w.ended = w.endingAtDeadline()
	}
	if b.Events == 0 {
		return w.ended
	}
	w.broadcaster.counts.delivered.Add(uint64(b.Events)) // #nosec G115 -- a count
	b.More = more || w.ended != ""
	return ""
}

// hold keeps what is due for a later Take, since the resource may be defined differently now. It returns an ending if
// that Take would be too late.
func (w *Watcher) hold(ctx context.Context, due uint64) Ending {
	if due != 0 {
		w.keepDue(due)
	}
	if w.heldSince.IsZero() {
		w.heldSince = time.Now()
	}
	if end := w.endingPastDeadline(ctx); end != "" {
		return end
	}
	if time.Since(w.heldSince) >= definedTimeout {
		return EndLost
	}
	return ""
}

// addBookmark adds a bookmark to a batch, unless the form of bookmarks is unknown, or the client began at that
// revision.
func (w *Watcher) addBookmark(b *Batch, revision uint64) {
	if bookmark := w.broadcaster.Form().PlainBookmark; bookmark != nil && revision > w.after {
		b.copied = bookmark.AppendTo(b.copied, revision)
		b.Events++
	}
}

// replay adds the changes from a revision on that the client does not have to a batch, as many as fit, and reports
// whether some are left. A failure means that they cannot be delivered: the history has forgotten some, or one cannot be
// written.
func (w *Watcher) replay(b *Batch, span *Span, from uint64) (more bool, failure Ending) {
	form := w.broadcaster.Form()
	versions := &span.Versions
	after := max(w.delivered, from-1)
	if after < span.RetainedAfter() {
		return false, EndBehind
	}
	for i := versions.FirstAfter(after); i < versions.Len(); i++ {
		v := versions.At(i)
		if eventType, o := w.filter.Event(v.Change); o != nil {
			e := event{eventType: eventType, object: o, revision: v.Revision}
			added := true
			var err error
			if b.Events == 0 && i == versions.Len()-1 { // usually so: the newest change is all that a watcher lacks
				err = w.broadcaster.addNewest(b, form, e)
			} else {
				added, err = b.add(form, e)
			}
			switch {
			case err != nil:
				return false, EndLost
			case !added:
				w.keepDue(v.Revision)
				return true, ""
			}
		}
		w.delivered = v.Revision
	}
	w.delivered = max(w.delivered, span.To)
	return false, ""
}

// keepDue lowers due to a revision whose change is left to deliver.
func (w *Watcher) keepDue(revision uint64) {
	for {
		due := w.due.Load()
		if (due != 0 && due <= revision) || w.due.CompareAndSwap(due, revision) {
			return
		}
	}
}

// InitialEnding returns the ending if no more may be written of the state with which the watch begins; "" if more may be.
// While Defined is false, it waits for up to initialDefinedTimeout. The client gets the whole state even if the history
// forgets meanwhile the changes that follow, unless that takes longer than initialStateTimeout.
func (w *Watcher) InitialEnding(ctx context.Context) Ending {
	for begun := time.Now(); ; clock.Sleep(ctx, definedPollInterval) {
		defined := w.defined()
		end := w.endingNow(ctx) // read after defined, which may have taken long
		switch {
		case end != "":
			return end
		case w.broadcaster.aborted.Load():
			return EndLost
		case w.broadcaster.published.Load().RetainedAfter() > w.after && time.Since(w.startedAt) >= initialStateTimeout:
			return EndBehind
		case defined:
			return ""
		case time.Since(begun) >= initialDefinedTimeout:
			return EndLost
		}
	}
}

// InitialSent records that the client has all of the state with which its watch begins.
func (w *Watcher) InitialSent() {
	w.broadcaster.mu.Lock()
	defer w.broadcaster.mu.Unlock()
	w.startedAt = time.Now()
}

// AwaitEnd waits until a watcher that must end for a reason may end, and returns the reason why it ends then. Meanwhile
// nothing is delivered. After a timeout, or if the client has gone, it does not wait. Otherwise each watcher ends at a
// moment of its own, and not within minWatchLife.
func (w *Watcher) AwaitEnd(ctx context.Context, why Ending) Ending {
	if why == EndTimeout || why == EndGone {
		return why
	}
	if w.phase.Load() == phaseOpen {
		w.broadcaster.planEnd(w, why)
		for why = w.endingPastDeadline(ctx); why == ""; why = w.endingPastDeadline(ctx) {
			w.Wait(ctx)
		}
	}
	clock.Sleep(ctx, time.Until(w.startedAt.Add(minWatchLife)))
	return why
}

// Close ends the watcher. The reason is counted; it is "" if nothing was delivered, so that the watch does not count.
func (w *Watcher) Close(why Ending) {
	w.broadcaster.remove(w)
	if why != "" {
		w.broadcaster.counts.addEnd(why)
	}
}

// endingPastDeadline returns the ending if the deadline has passed, though something may be left to deliver; "" if it has
// not. It returns EndGone if ctx is done.
func (w *Watcher) endingPastDeadline(ctx context.Context) Ending {
	switch {
	case ctx.Err() != nil:
		return EndGone
	case w.phase.Load() != phaseOpen:
		return w.endingAtDeadline()
	}
	return ""
}

// endingNow returns the ending if not even what is left may be delivered; "" if it may be. At a timeout kube-apiserver
// does not deliver what is left either.
func (w *Watcher) endingNow(ctx context.Context) Ending {
	isDrained := w.phase.Load() == phaseDrained
	if end := w.endingPastDeadline(ctx); isDrained || end == EndGone || end == EndTimeout {
		return end
	}
	return ""
}

// endingAtDeadline returns the planned ending.
func (w *Watcher) endingAtDeadline() Ending {
	w.broadcaster.mu.Lock()
	defer w.broadcaster.mu.Unlock()
	return w.plannedEnding
}

// hasDue reports whether anything is left to deliver.
func (w *Watcher) hasDue() bool { return w.due.Load() != 0 || w.bookmarkDue.Load() }

// setDue records that the change at a revision must be delivered. If an earlier one is due, the watcher is awake or
// looks again by itself, and Take looks at all changes that follow.
func (w *Watcher) setDue(revision uint64) {
	if w.due.CompareAndSwap(0, revision) {
		w.wakeUp()
	}
}

// wakeUp ends Wait.
func (w *Watcher) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // the watcher is awake, or about to be
	}
}

// nextBookmark returns the time at which a watch with a deadline gets its next bookmark; zero if it gets none.
func nextBookmark(now, deadline time.Time) time.Time {
	at := now.Add(bookmarkInterval + rand.N(bookmarkJitter)) // #nosec G404 -- no secret
	last := deadline.Add(-lastBookmarkLead)
	switch {
	case !last.Before(at):
		return at
	case last.After(now):
		return last
	}
	return time.Time{}
}

// setTimerLocked sets the time at which the watcher must be woken, whatever happens.
func (w *Watcher) setTimerLocked(at time.Time) {
	w.wakeAt = at
	w.timer.Reset(time.Until(at))
}

// nextWakeLocked returns the time at which an open watcher must be woken: for its next bookmark, or at its deadline.
func (w *Watcher) nextWakeLocked() time.Time {
	if !w.bookmarkAt.IsZero() && w.bookmarkAt.Before(w.deadline) {
		return w.bookmarkAt
	}
	return w.deadline
}
