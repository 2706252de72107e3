package watch

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
)

// Watcher is one client's position in the history. The goroutine of the client's watch calls Take and Wait in turn, until Take
// returns an [Ending] (ending.go).
//
// A change is due if the filter selects it and the client does not have it yet. The broadcaster records the first due change,
// and wakes the watcher. Three revisions say how far changes have come:
//
//	published   The history reaches up to this revision.
//	dispatched  Up to this revision, the broadcaster has recorded what is due.
//	delivered   Up to this revision, Take has looked at each change, and the client has those that the filter selects. Bookmarks
//	            do not move this revision.
//
// For example, a watch begins after revision 10, and its filter selects only the changes at 12 and 15. At first, Take looks at
// every change after 10:
//
//	what happens                         firstDue  Take returns      delivered
//	the watch begins, published is 13    11        the change at 12  13
//	14 is published                      0         (is not called)   13
//	15 is published                      15        the change at 15  15
//	a bookmark is due, dispatched is 20  0         a bookmark at 20  15
//
// These names say how a watcher ends; "" stands for no ending:
//
//	plannedEnding    comes at the deadline
//	dueEnding        is the planned ending once the deadline has passed, or EndGone once the client has gone
//	immediateEnding  is the due ending if nothing more may be delivered before it
//	nextEnding       is the due ending once Take has returned the last events
type Watcher struct {
	broadcaster    *Broadcaster
	filter         index.Filter
	startRevision  uint64      // The client began with the state at this revision.
	wantsBookmarks bool        // The client gets bookmarks.
	isDefined      func() bool // [Options].IsDefined
	delivered      uint64      // The client has all changes up to this revision that the filter selects.
	// heldSince is the time since which Take has held events back because isDefined returns false; zero if it holds none back.
	heldSince time.Time
	// nextEnding is the ending that the next Take returns; "" until Take has returned the last events.
	nextEnding Ending

	// firstDue is the revision of the first change that is due; 0 if no change is due. It may also be lower than that revision.
	// For example, a watch that begins after 10 has 11 at first, since nobody has looked at the next changes yet.
	firstDue atomic.Uint64
	// bookmarkDue reports whether a bookmark is left to deliver.
	bookmarkDue atomic.Bool
	phase       atomic.Int32  // phaseOpen, phaseDraining or phaseDrained (ending.go)
	wake        chan struct{} // A value ends Wait.

	// The broadcaster's mu guards the fields below. Only the watch's own goroutine writes startedAt, so that goroutine may read
	// startedAt without mu.
	bucket        index.Bucket
	position      int         // The index of the watcher in broadcaster.buckets[bucket].
	startedAt     time.Time   // When the watch began, or later: when the client had all of the initial state.
	deadline      time.Time   // The phase is open until then.
	plannedEnding Ending      // The ending that comes at the deadline.
	bookmarkAt    time.Time   // The time of the next bookmark; zero if there will be none.
	wakeAt        time.Time   // The time for which the timer is set.
	timer         *time.Timer // Wakes the watcher at wakeAt; nil once the watcher was removed.
}

// Options say what a client asks for.
type Options struct {
	// After is the revision after which the client gets changes. The state at this revision is the watch's initial state.
	After uint64
	// Filter selects the objects whose changes the client gets.
	Filter index.Filter
	// Bookmarks reports whether the client gets bookmarks.
	Bookmarks bool
	// Timeout is the longest duration of the watch.
	Timeout time.Duration
	// IsDefined reports whether the resource is still served and defined as it was when the client came. It must return the
	// same for all clients of a broadcaster, and must not block. The watcher keeps the function until it is closed.
	IsDefined func() bool
}

// Watch returns a watcher, which must be closed. It returns nil if the span lacks changes after o.After, if the span ends
// before o.After, or if the broadcaster has ended.
func (b *Broadcaster) Watch(o Options) *Watcher {
	span := b.published.Load()
	if o.After < span.RetainedAfter() || o.After > span.To {
		return nil
	}
	now := time.Now()
	w := &Watcher{
		broadcaster:    b,
		filter:         o.Filter,
		startRevision:  o.After,
		wantsBookmarks: o.Bookmarks,
		isDefined:      o.IsDefined,
		delivered:      o.After,
		wake:           make(chan struct{}, 1),
		bucket:         o.Filter.NarrowestBucket(),
		startedAt:      now,
		deadline:       now.Add(o.Timeout),
		plannedEnding:  EndTimeout,
	}
	if o.Bookmarks {
		w.bookmarkAt = nextBookmark(now, w.deadline)
	}
	w.firstDue.Store(o.After + 1)
	return b.add(w)
}

const (
	// holdTimeout is the time for which a watcher holds events back while [Options].IsDefined returns false. Then it ends. The
	// result comes from an API server, and even a busy one answers or refuses a request in less time.
	holdTimeout = 30 * time.Second
	// initialHoldTimeout replaces holdTimeout while the initial state is written. It is shorter, since the watch keeps that
	// state in memory meanwhile.
	initialHoldTimeout = 3 * time.Second
	// holdPollInterval is the time between two calls of IsDefined while it returns false.
	holdPollInterval = 100 * time.Millisecond
	// initialStateTimeout is the time that a client has to read the initial state if the history forgets the next changes
	// meanwhile. This watch cannot go on then, but a client that has the whole state can resume at another server. The time is
	// bounded, since the state stays in memory while the client reads it.
	initialStateTimeout = 30 * time.Second
)

// AwaitDefined is called before another part of the initial state is written. It blocks until IsDefined returns true, and then
// returns "". It returns an ending if the watch must end instead, at the latest after initialHoldTimeout (3 s). If the history
// forgets the changes after the initial state meanwhile, the client still gets the whole state, unless that takes longer than
// initialStateTimeout (30 s).
func (w *Watcher) AwaitDefined(ctx context.Context) Ending {
	begunAt := time.Now()
	for {
		isDefined := w.isDefined()
		ending := w.immediateEnding(ctx) // Read after isDefined, so that an end that comes during that call counts.
		isBehind := w.broadcaster.published.Load().RetainedAfter() > w.startRevision
		switch { // The order matters: the first three reasons to end count even if the resource is defined.
		case ending != "":
			return ending
		case w.broadcaster.aborted.Load():
			return EndLost
		case isBehind && time.Since(w.startedAt) >= initialStateTimeout:
			return EndBehind
		case isDefined:
			return ""
		case time.Since(begunAt) >= initialHoldTimeout:
			return EndLost
		}
		clock.Sleep(ctx, holdPollInterval)
	}
}

// InitialSent records that the client has all of the initial state.
func (w *Watcher) InitialSent() {
	w.broadcaster.mu.Lock()
	defer w.broadcaster.mu.Unlock()
	w.startedAt = time.Now()
}

// Wait blocks until there may be something to deliver, or ctx ends.
func (w *Watcher) Wait(ctx context.Context) {
	var poll <-chan time.Time
	if !w.heldSince.IsZero() {
		poll = time.After(holdPollInterval)
	}
	select {
	case <-w.wake:
	case <-poll:
	case <-ctx.Done():
	}
}

// Take replaces the events in b, and has one of three results:
//
//	events in b    The client must get these events now. If b.More is true, the next Take needs no Wait before it.
//	an ending      The client must get nothing more. The batch is empty.
//	neither        Nothing is due before [Watcher.Wait] returns.
//
// If ctx is done when Take is called, the ending is [EndGone].
func (w *Watcher) Take(ctx context.Context, b *Batch) Ending {
	b.Reset()
	if ending := cmp.Or(w.nextEnding, w.immediateEnding(ctx)); ending != "" {
		return ending
	}
	due := w.takeDue()
	hasWork := due.first != 0 || due.bookmark
	// Nothing may be delivered before it is certain that the resource is defined as before.
	if hasWork && !w.isDefined() {
		return w.holdBack(ctx, due.first)
	}
	w.heldSince = time.Time{}
	more, isBehind := w.fill(b, due)
	// aborted is read last: if Abort was called meanwhile, the events in b may be wrong.
	if w.broadcaster.aborted.Load() {
		b.Reset()
		return w.dueEnding(ctx) // The watcher ends at the deadline that Abort has planned.
	}
	if isBehind {
		b.Reset()
		return EndBehind
	}
	if due.isDraining && !more {
		w.nextEnding = w.dueEnding(ctx)
	}
	if b.Events == 0 {
		return w.nextEnding // There is no event to return first, so the ending need not wait for the next Take.
	}
	w.broadcaster.counts.delivered.Add(uint64(b.Events)) // #nosec G115 -- a count
	b.More = more || w.nextEnding != ""
	return ""
}

// dueWork is the work of one Take, as it was when the Take began.
type dueWork struct {
	isDraining bool   // The deadline has passed.
	dispatched uint64 // What Broadcaster.dispatched was.
	first      uint64 // What Watcher.firstDue was; 0 if no change is due.
	span       *Span  // What Broadcaster.published was.
	bookmark   bool   // A bookmark is due.
}

// takeDue returns the work that is due, and sets firstDue to 0.
//
// The order of the reads matters. The broadcaster writes published first, then firstDue, and then dispatched. takeDue reads in
// the opposite order. So for each change up to due.dispatched that the filter selects, one of two things is true: it was
// delivered before, or due.span has it at the revision due.first or later.
func (w *Watcher) takeDue() dueWork {
	due := dueWork{isDraining: w.phase.Load() != phaseOpen}
	due.dispatched = w.broadcaster.dispatched.Load()
	due.first = w.firstDue.Swap(0)
	due.span = w.broadcaster.published.Load()
	// A draining watcher sends a last bookmark. With this bookmark, the client can resume at the newest revision, which other
	// replicas have in memory, too.
	due.bookmark = w.bookmarkDue.Load() || (due.isDraining && w.wantsBookmarks)
	return due
}

// fill adds the due changes to a batch, as many as fit, and then the due bookmark. more reports whether changes are left.
// isBehind reports whether the history has forgotten a change that the client does not have.
func (w *Watcher) fill(b *Batch, due dueWork) (more, isBehind bool) {
	if due.first != 0 {
		more, isBehind = w.replay(b, due.span, due.first)
	}
	if due.bookmark && !more {
		w.bookmarkDue.Store(false)
		w.addBookmark(b, max(w.delivered, due.dispatched))
	}
	return more, isBehind
}

// holdBack makes the changes from the revision firstDue due again, so that a later Take delivers them. It is called while the
// resource may be defined differently. If firstDue is 0, only a bookmark is held back, which stays due. holdBack returns an
// ending if the watcher must not wait any longer.
func (w *Watcher) holdBack(ctx context.Context, firstDue uint64) Ending {
	if firstDue != 0 {
		w.restoreDue(firstDue)
	}
	if w.heldSince.IsZero() {
		w.heldSince = time.Now()
	}
	if ending := w.dueEnding(ctx); ending != "" {
		return ending
	}
	if time.Since(w.heldSince) >= holdTimeout {
		return EndLost
	}
	return ""
}

// replay adds events for the changes from the revision firstDue on that the client does not have, as many as fit into the
// batch. more reports whether changes are left. isBehind reports whether the history has forgotten one of the changes.
func (w *Watcher) replay(b *Batch, span *Span, firstDue uint64) (more, isBehind bool) {
	form := w.broadcaster.Form()
	versions := &span.Versions
	after := max(w.delivered, firstDue-1)
	if after < span.RetainedAfter() {
		return false, true
	}
	for i := versions.FirstAfter(after); i < versions.Len(); i++ {
		v := versions.At(i)
		eventType, o := w.filter.Event(v.Change)
		if o != nil {
			added := b.add(form, event{eventType: eventType, object: o, revision: v.Revision})
			if !added {
				w.restoreDue(v.Revision)
				return true, false
			}
		}
		w.delivered = v.Revision
	}
	w.delivered = max(w.delivered, span.To)
	return false, false
}

// addBookmark adds a bookmark to a batch, unless the form of bookmarks is unknown or the client began at the revision.
func (w *Watcher) addBookmark(b *Batch, revision uint64) {
	bookmark := w.broadcaster.Form().PlainBookmark
	if bookmark != nil && revision > w.startRevision {
		b.copied = bookmark.AppendTo(b.copied, revision)
		b.Events++
	}
}

// Close removes the watcher, and counts its ending. For a watch from which nothing was delivered, the ending is "", and is not
// counted.
func (w *Watcher) Close(ending Ending) {
	w.broadcaster.remove(w)
	if ending != "" {
		w.broadcaster.counts.addEnding(ending)
	}
}

// setDue makes the change at a revision due and wakes the watcher. If an earlier change is due already, setDue does nothing,
// for two reasons. The watcher calls Take soon, since the earlier change has woken it, or since Wait polls for a change that
// was held back. And that Take looks at all later changes, too.
func (w *Watcher) setDue(revision uint64) {
	wasIdle := w.firstDue.CompareAndSwap(0, revision)
	if wasIdle {
		w.wakeUp()
	}
}

// restoreDue makes the change at a revision due again, which Take has not delivered. If an earlier change is due already,
// restoreDue does nothing.
func (w *Watcher) restoreDue(revision uint64) {
	for {
		first := w.firstDue.Load()
		isDueAlready := first != 0 && first <= revision
		if isDueAlready || w.firstDue.CompareAndSwap(first, revision) {
			return
		}
	}
}

// wakeUp ends Wait.
func (w *Watcher) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // The channel has a value already, which will end Wait.
	}
}

// setTimerLocked makes the timer wake the watcher at a time.
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
