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

// Watcher has one client's place in the log. Take, Wait and Close are for one goroutine.
//
// A watch after revision 10 whose filter chooses the changes at 11 and 14, in a log that is at 12 when
// it begins:
//
//	log at   woken   due   Take gives           delivered
//	12       yes     11    the change at 11     12
//	13       no      0                          12
//	14       yes     14    the change at 14     14
//	20       timer   0     a bookmark at 20     14
//
// The bookmark may say 20: changes up to there were dispatched, and none was for this watcher.
type Watcher struct {
	broadcaster *Broadcaster
	filter      index.Filter
	after       uint64
	bookmarks   bool // the client wants bookmarks
	// delivered is the revision up to which the client was told every change that its filter chooses.
	delivered uint64
	// ended is the reason of the end, once the client was told all that it is told; empty before.
	ended Ending

	// due is the lowest revision of a change that the client may still have to be told; 0 if there is none. It may be
	// lower than that change, and never higher.
	due atomic.Uint64
	// looking reports whether Take has set due to 0 and may put it back. Such a watcher counts as one that waits.
	looking atomic.Bool
	// pastDeadline reports whether the client is told only what is left, and pastDrain whether it is told nothing more.
	// bookmarkDue reports whether it must be told a bookmark.
	pastDeadline, pastDrain, bookmarkDue atomic.Bool
	wake                                 chan struct{}

	// The broadcaster's mu guards the fields below.
	bucket     index.Bucket
	position   int // the index in the bucket
	begun      time.Time
	deadline   time.Time
	ending     Ending      // the reason of the end at the deadline
	bookmarkAt time.Time   // the time of the next bookmark; zero if there will be none
	wakeAt     time.Time   // the time for which the timer is set
	timer      *time.Timer // wakes the watcher for its end or a bookmark; nil once the watcher was removed
}

// Options say what a client asks for.
type Options struct {
	// After is the revision after which the client is told changes.
	After uint64
	// Filter chooses the objects that it is told of.
	Filter index.Filter
	// Bookmarks reports whether it is told bookmarks.
	Bookmarks bool
	// Timeout is the time for which its watch lasts.
	Timeout time.Duration
	// Defined reports whether the resource is still served and defined as it was when the client came. It must be the same
	// for all clients of a broadcaster, and must not block. A change is told only if Defined is true after it came.
	Defined func() bool
}

// Ending is the reason why a watcher has ended.
type Ending string

// The reasons why watchers end. Each ends in order, between two events.
const (
	// EndTimeout is the timeout that the client had asked for.
	EndTimeout Ending = "timeout"
	// EndLost means that the feed has lost the state, or that it may be wrong.
	EndLost Ending = "lost"
	// EndBehind means that the history has forgotten the change that the client should have been told next.
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

	// drainTimeout is the time for which a watcher past its deadline is still told what is left in the log.
	drainTimeout = 10 * time.Second

	// definedTimeout is the time after which a watcher ends if [Options].Defined is false while changes wait. To answer,
	// an API server must be asked, and a busy one keeps requests in its queue for less than this. Initial events hold
	// memory for their bytes, so they wait for initialDefinedTimeout only. definedPollInterval is the time between two
	// calls of Defined.
	definedTimeout        = 30 * time.Second
	initialDefinedTimeout = 3 * time.Second
	definedPollInterval   = 100 * time.Millisecond
	// toldPollInterval is the interval at which [Broadcaster.AwaitTold] looks whether watchers were told all.
	toldPollInterval = 10 * time.Millisecond

	// initialStateTimeout is the time that a client has to read the state with which its watch begins, if the history
	// forgets meanwhile the changes that follow. Only a client that was told the whole state can go on elsewhere; but one
	// that reads slowly holds memory.
	initialStateTimeout = 30 * time.Second
)

// Watch returns a watcher, which must be closed. It returns nil if the broadcaster has ended, or the span does not have
// all changes after o.After.
func (b *Broadcaster) Watch(o Options) *Watcher {
	now := time.Now()
	w := &Watcher{
		broadcaster: b, filter: o.Filter, after: o.After, bookmarks: o.Bookmarks, delivered: o.After, wake: make(chan struct{}, 1),
		bucket: o.Filter.Bucket(), begun: now, deadline: now.Add(o.Timeout), ending: EndTimeout,
	}
	if o.Bookmarks {
		w.bookmarkAt = nextBookmark(now, w.deadline)
	}
	w.due.Store(o.After + 1)
	if span := b.published.Load(); o.After < span.RetainedAfter() || o.After > span.To || !b.add(w, o.Defined) {
		return nil
	}
	return w
}

// Wait waits until there may be something to tell, or ctx ends.
func (w *Watcher) Wait(ctx context.Context) {
	select {
	case <-w.wake:
	case <-ctx.Done():
	}
}

// Take replaces the events in b with those that the client must be told now. If there are none and no ending, there is
// nothing to tell before [Watcher.Wait] returns. After an ending the client must be told nothing more. The ending is
// [EndGone] if ctx is done.
func (w *Watcher) Take(ctx context.Context, b *Batch) (end Ending) {
	b.Reset()
	if end := cmp.Or(w.ended, w.endNow(ctx)); end != "" {
		return end
	}
	pastDeadline := w.pastDeadline.Load()
	// The order matters: dispatched is read before due, and due before confirmed. So every change up to dispatched that
	// this watcher must tell is at or after due, or was told.
	dispatched := w.broadcaster.dispatched.Load()
	w.looking.Store(true)
	defer w.looking.Store(false)
	first := w.due.Swap(0)
	dispatching := w.broadcaster.dispatching.Load()
	span := w.broadcaster.confirmed.Load()
	more := false
	if first != 0 {
		more, end = w.replay(b, span, first)
		// due had only the first change. Later ones that were dispatched, but not confirmed yet, stay due.
		if first <= span.To && !more && span.To < dispatching {
			w.keepDue(span.To + 1)
		}
	}
	// With a last bookmark the client can resume at the newest revision, which other replicas have in memory, too.
	if !more && dispatched <= span.To && ((pastDeadline && w.bookmarks) || w.bookmarkDue.Swap(false)) {
		if plain, at := w.broadcaster.Form().Plain, max(w.delivered, dispatched); plain != nil && at > w.after {
			b.copied = plain.AppendTo(b.copied, at)
			b.Events++
		}
	}
	if w.broadcaster.lost.Load() { // read last: it may have become true meanwhile
		b.Reset()
		more = false
		end = ""
	}
	if end != "" {
		b.Reset()
		return end
	}
	if pastDeadline && !more {
		w.ended = w.plannedEnding()
	}
	w.broadcaster.counts.delivered.Add(uint64(b.Events)) // #nosec G115 -- a count
	if b.Events == 0 {
		end = w.ended
	}
	b.More = more || w.ended != ""
	return end
}

// replay adds the changes from a revision on that the client was not told to a batch, as many as fit, and reports
// whether some are left. An ending means that they cannot be told: the history has forgotten some, or one cannot be
// written.
func (w *Watcher) replay(b *Batch, span *Span, from uint64) (more bool, end Ending) {
	if from > span.To { // there is no change, or it is not confirmed yet
		if from <= w.broadcaster.published.Load().To {
			w.keepDue(from)
		}
		return false, ""
	}
	form := w.broadcaster.Form()
	versions := &span.Versions
	after := max(w.delivered, from-1)
	if after < span.RetainedAfter() {
		return false, EndBehind
	}
	for i := versions.FirstAfter(after); i < versions.Len(); i++ {
		v := versions.At(i)
		if kind, o := w.filter.Event(v.Change); o != nil {
			var added bool
			var err error
			if b.Events == 0 && i == versions.Len()-1 {
				added, err = true, w.broadcaster.addNewest(b, form, kind, o, v.Revision)
			} else {
				added, err = b.add(form, kind, o, v.Revision)
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

// keepDue lowers due to a revision whose change was not told yet.
func (w *Watcher) keepDue(revision uint64) {
	for {
		due := w.due.Load()
		if (due != 0 && due <= revision) || w.due.CompareAndSwap(due, revision) {
			return
		}
	}
}

// Interrupted returns the reason why a client must be told nothing more of the state with which its watch begins; "" if
// it may be told. While Defined is false, it waits a little. A client is told the whole state even if the history
// forgets meanwhile the changes that follow, unless that takes longer than initialStateTimeout.
func (w *Watcher) Interrupted(ctx context.Context) Ending {
	for begun := time.Now(); ; clock.Sleep(ctx, definedPollInterval) {
		defined, end := w.broadcaster.defined(), w.endNow(ctx)
		switch {
		case end != "":
			return end
		case w.broadcaster.lost.Load():
			return EndLost
		case w.broadcaster.published.Load().RetainedAfter() > w.after && time.Since(w.begun) >= initialStateTimeout:
			return EndBehind
		case defined:
			return ""
		case time.Since(begun) >= initialDefinedTimeout:
			return EndLost
		}
	}
}

// InitialSent records that the client was told all of the state with which its watch begins.
func (w *Watcher) InitialSent() {
	w.broadcaster.mu.Lock()
	defer w.broadcaster.mu.Unlock()
	w.begun = time.Now()
}

// AwaitEnd waits, while nothing is told, until a watcher may end for a reason, and returns the reason why it ends then.
// After a timeout, or if the client has gone, it does not wait. Else each watcher ends at a moment of its own, and not
// within minWatchLife.
func (w *Watcher) AwaitEnd(ctx context.Context, why Ending) Ending {
	if why == EndTimeout || why == EndGone {
		return why
	}
	if !w.pastDeadline.Load() {
		w.broadcaster.endSoon(w, why)
		for why = w.endDue(ctx); why == ""; why = w.endDue(ctx) {
			w.Wait(ctx)
		}
	}
	clock.Sleep(ctx, time.Until(w.begun.Add(minWatchLife)))
	return why
}

// Close ends the watcher. The reason is counted; it is "" if the client was told nothing, so that the watch does not
// count.
func (w *Watcher) Close(why Ending) {
	w.broadcaster.remove(w)
	if why != "" {
		w.broadcaster.counts.end(why)
	}
}

// endDue returns the reason why the watcher must end, though there may be something left to tell; "" if it need not.
func (w *Watcher) endDue(ctx context.Context) Ending {
	switch {
	case ctx.Err() != nil:
		return EndGone
	case w.pastDeadline.Load():
		return w.plannedEnding()
	}
	return ""
}

// endNow returns the reason why the client must not even be told what is left; "" if it may be. At a timeout
// kube-apiserver does not tell what is left either.
func (w *Watcher) endNow(ctx context.Context) Ending {
	if end := w.endDue(ctx); end == EndGone || end == EndTimeout || w.pastDrain.Load() {
		return end
	}
	return ""
}

// plannedEnding returns the reason why the watcher ends at its deadline.
func (w *Watcher) plannedEnding() Ending {
	w.broadcaster.mu.Lock()
	defer w.broadcaster.mu.Unlock()
	return w.ending
}

// isWaiting reports whether the client has still to be told something. Take may put back what it has taken from due,
// while looking is true. So due is read before looking and after it: one of the three reads then shows what is put
// back.
//
//	Take:       looking = true    due = 0    due = 7    looking = false
//	isWaiting:                       due?  looking?                      due?
func (w *Watcher) isWaiting() bool {
	return w.due.Load() != 0 || w.bookmarkDue.Load() || w.looking.Load() || w.due.Load() != 0
}

// changed wakes the watcher, since it may have to tell the change at a revision.
func (w *Watcher) changed(revision uint64) {
	w.due.CompareAndSwap(0, revision) // if an earlier change is due, Take looks at all that follow it
	w.wakeUp()                        // always: the watcher may have looked before this change was confirmed
}

// wakeUp ends Wait.
func (w *Watcher) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // it is awake, or about to be
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

// setTimer sets the time at which the watcher must be woken, whatever happens.
func (w *Watcher) setTimer(at time.Time) {
	w.wakeAt = at
	w.timer.Reset(time.Until(at))
}

// nextWake returns the time at which the watcher must be woken, whatever happens.
func (w *Watcher) nextWake() time.Time {
	if !w.bookmarkAt.IsZero() && w.bookmarkAt.Before(w.deadline) {
		return w.bookmarkAt
	}
	return w.deadline
}
