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

const (
	// bookmarkEvery is how often a watch gets a bookmark that asks for them, and bookmarkJitter how
	// much later at most; one comes beforeDeadline before the watch's timeout
	// (k8s.io/apiserver, storage/cacher).
	bookmarkEvery  = time.Minute
	bookmarkJitter = 1300 * time.Millisecond
	beforeDeadline = 2 * time.Second

	// drainFor is the time in which a watcher past its deadline still gets what is left in the log.
	drainFor = 10 * time.Second

	// definedWait is the time for which events wait while [Options].Defined says no; then the watcher ends. To know, an API
	// server must be asked, and one with too much to do keeps requests in its queue for less than this. Initial
	// events take room for their bytes, so they wait for initialWait only. askPause is the time until Defined is
	// asked again.
	definedWait = 30 * time.Second
	initialWait = 3 * time.Second
	askPause    = 100 * time.Millisecond
	// lookPause is the time between two looks at whether watchers were told all.
	lookPause = 10 * time.Millisecond

	// stateFor is the time that a client may take for the state that its watch begins with, if the history
	// forgets meanwhile what comes next. Only a client that has got the whole state can go on elsewhere;
	// else it asks for all of it again. But one that reads slowly holds room.
	stateFor = 30 * time.Second
)

// Ending is the reason why a watcher has ended.
type Ending string

// Why watchers end. Each ends in order, between two events.
const (
	// EndTimeout is the timeout that the client had asked for.
	EndTimeout Ending = "timeout"
	// EndLost means that the feed has lost the span, or what it knows may be wrong.
	EndLost Ending = "lost"
	// EndBehind means that the history has forgotten what the client was to be told next.
	EndBehind Ending = "behind"
	// EndShutdown means that the process ends.
	EndShutdown Ending = "shutdown"
	// EndGone means that the client has gone, or cannot be written to.
	EndGone Ending = "gone"
)

// Endings returns all of them.
func Endings() []Ending { return []Ending{EndTimeout, EndLost, EndBehind, EndShutdown, EndGone} }

// Options say what a client asks for.
type Options struct {
	// After is the revision after which it is told what happens.
	After uint64
	// Filter is what it is told about.
	Filter index.Filter
	// Bookmarks reports whether it gets bookmarks.
	Bookmarks bool
	// Timeout is the time for which its watch lasts.
	Timeout time.Duration
	// Defined says whether the resource is still served and defined as it was when the client came. It
	// must be the same for all clients of a broadcaster, and not wait for anything. While it is false, no change is
	// told that came since it was true.
	Defined func() bool
}

// Watcher is where one client is in the log. Take, Wait and Close are for one goroutine.
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
	bookmarks   bool // the client wants them
	// delivered is the revision up to which the client got everything that its filter chooses.
	delivered uint64
	// ended is set when the client has been told the last thing.
	ended Ending

	// due is the revision of the first change that the client may not have been told of; 0 if there
	// is none. It is never above such a change.
	due atomic.Uint64
	// looking reports whether Take has set due to 0, and may put it back. The broadcaster counts such a watcher as one that waits.
	looking atomic.Bool
	// pastDeadline reports whether the client is told only what is left, pastDrain whether not even that. bookmarkDue: it is to get a
	// bookmark.
	pastDeadline, pastDrain, bookmarkDue atomic.Bool
	wake                                 chan struct{}

	// What follows is the broadcaster's, and its mu guards it.
	bucket     index.Bucket
	place      int // in the bucket
	begun      time.Time
	deadline   time.Time
	ending     Ending    // why it ends at the deadline
	bookmarkAt time.Time // when it gets the next one; zero: never
	wakeAt     time.Time
	heapIndex  int // in the schedule, if inHeap
	inHeap     bool
}

// Watch returns a watcher into the broadcaster's span, or nil if the broadcaster has ended or the span does not have
// what comes after the revision. It must be closed.
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
	if span := b.published.Load(); o.After < span.Kept() || o.After > span.To || !b.add(w, o.Defined) {
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

// Take puts the events into b that the client is to be told now. If there are neither events nor an
// ending, there is nothing to tell before [Watcher.Wait] returns. After an ending nothing more is
// told. If ctx has ended, it is [EndGone].
func (w *Watcher) Take(ctx context.Context, b *Batch) (end Ending) {
	b.Reset()
	if end := cmp.Or(w.ended, w.endsNow(ctx)); end != "" {
		return end
	}
	pastDeadline := w.pastDeadline.Load()
	// The order counts, dispatched before due and due before confirmed: so every change up to dispatched that is
	// for this watcher is in due, or was told.
	dispatched := w.broadcaster.dispatched.Load()
	w.looking.Store(true)
	defer w.looking.Store(false)
	due, more := w.due.Swap(0), false
	dispatching, span := w.broadcaster.dispatching.Load(), w.broadcaster.confirmed.Load()
	if due != 0 {
		more, end = w.replay(b, span, due)
		// What was dispatched and is not confirmed yet was not noted in due, since an earlier change was.
		if due <= span.To && !more && span.To < dispatching {
			w.stillDue(span.To + 1)
		}
	}
	// A last bookmark lets the client resume at what is newest, which others have in memory too.
	if !more && dispatched <= span.To && (pastDeadline && w.bookmarks || w.bookmarkDue.Swap(false)) {
		if plain, at := w.broadcaster.Form().Plain, max(w.delivered, dispatched); plain != nil && at > w.after {
			b.copied = plain.AppendTo(b.copied, at)
			b.Events++
		}
	}
	if w.broadcaster.lost.Load() { // looked at last: it may be so since a moment ago
		b.Reset()
		more, end = false, ""
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

// replay puts the changes from a revision on that the client was not told into a batch, as many as fit. more:
// some are left. With an ending they cannot be told: the history has forgotten some, or one cannot be written.
func (w *Watcher) replay(b *Batch, span *Span, from uint64) (more bool, end Ending) {
	if from > span.To { // nothing, or what is not confirmed
		if from <= w.broadcaster.published.Load().To {
			w.stillDue(from)
		}
		return false, ""
	}
	form := w.broadcaster.Form()
	versions := &span.Versions
	after := max(w.delivered, from-1)
	if after < span.Kept() {
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
				w.stillDue(v.Revision)
				return true, ""
			}
		}
		w.delivered = v.Revision
	}
	w.delivered = max(w.delivered, span.To)
	return false, ""
}

// stillDue notes that a change was left for the next time.
func (w *Watcher) stillDue(revision uint64) {
	for {
		due := w.due.Load()
		if due != 0 && due <= revision || w.due.CompareAndSwap(due, revision) {
			return
		}
	}
}

// Interrupted is the reason why a client may be told nothing more of the state that its watch begins with; ""
// if it may. While Defined says no, it waits a little. The whole state is told even if the history forgets
// meanwhile what comes next, unless that takes too long.
func (w *Watcher) Interrupted(ctx context.Context) Ending {
	for begun := time.Now(); ; clock.Sleep(ctx, askPause) {
		defined, end := w.broadcaster.defined(), w.endsNow(ctx)
		switch {
		case end != "":
			return end
		case w.broadcaster.lost.Load():
			return EndLost
		case w.broadcaster.published.Load().Kept() > w.after && time.Since(w.begun) >= stateFor:
			return EndBehind
		case defined:
			return ""
		case time.Since(begun) >= initialWait:
			return EndLost
		}
	}
}

// InitialSent says that the client has been told all of the state that its watch begins with: from now
// on it follows.
func (w *Watcher) InitialSent() {
	w.broadcaster.mu.Lock()
	defer w.broadcaster.mu.Unlock()
	w.begun = time.Now()
}

// AwaitEnd waits, while nothing is told, until a watcher may end for a reason, and returns why it ends then.
// Where its client has gone or its timeout has come, that is at once; else it is at a moment of the watcher's
// own, and not in the first second after it began to follow.
func (w *Watcher) AwaitEnd(ctx context.Context, why Ending) Ending {
	if why == EndTimeout || why == EndGone {
		return why
	}
	if !w.pastDeadline.Load() {
		w.broadcaster.endSoon(w, why)
		for why = w.mustEnd(ctx); why == ""; why = w.mustEnd(ctx) {
			w.Wait(ctx)
		}
	}
	clock.Sleep(ctx, time.Until(w.begun.Add(atLeast)))
	return why
}

// Close ends the watcher, for a reason that is counted; "" if its client was told nothing, and is not
// going to be.
func (w *Watcher) Close(why Ending) {
	w.broadcaster.remove(w)
	if why != "" {
		w.broadcaster.counts.end(why)
	}
}

// mustEnd is the reason why the watcher must end, though there may be something left to tell; "" if it need not.
func (w *Watcher) mustEnd(ctx context.Context) Ending {
	switch {
	case ctx.Err() != nil:
		return EndGone
	case w.pastDeadline.Load():
		return w.plannedEnding()
	}
	return ""
}

// endsNow is the reason why the client is told nothing more, not even what is left; "" if it is. At a timeout
// kube-apiserver does not tell what is left either.
func (w *Watcher) endsNow(ctx context.Context) Ending {
	if end := w.mustEnd(ctx); end == EndGone || end == EndTimeout || w.pastDrain.Load() {
		return end
	}
	return ""
}

// plannedEnding is the reason why the watcher ends at its deadline.
func (w *Watcher) plannedEnding() Ending {
	w.broadcaster.mu.Lock()
	defer w.broadcaster.mu.Unlock()
	return w.ending
}

// changed tells the watcher of a change at a revision that may be for it.
func (w *Watcher) changed(revision uint64) {
	w.due.CompareAndSwap(0, revision) // if there is an earlier one, all that follows it is looked at
	w.wakeUp()                        // always: the watcher may have looked before this change was confirmed
}

func (w *Watcher) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // it is awake, or about to be
	}
}

// nextBookmark is the time at which a watch with a deadline gets its next bookmark; zero if it gets none.
func nextBookmark(now, deadline time.Time) time.Time {
	at := now.Add(bookmarkEvery + rand.N(bookmarkJitter)) // #nosec G404 -- no secret
	if last := deadline.Add(-beforeDeadline); last.Before(at) {
		if at = last; !at.After(now) {
			return time.Time{}
		}
	}
	return at
}

// nextWake is the time at which the watcher is to be woken, whatever happens.
func (w *Watcher) nextWake() time.Time {
	if !w.bookmarkAt.IsZero() && w.bookmarkAt.Before(w.deadline) {
		return w.bookmarkAt
	}
	return w.deadline
}

// onTimer wakes the watcher, for its end or for a bookmark, and returns when it is to be woken again.
func (w *Watcher) onTimer(now time.Time) time.Time {
	if !now.Before(w.deadline) {
		w.pastDrain.Store(w.pastDeadline.Load())
		w.pastDeadline.Store(true)
		w.wakeUp()
		return now.Add(drainFor)
	}
	w.bookmarkDue.Store(true)
	w.wakeUp()
	w.bookmarkAt = nextBookmark(now, w.deadline)
	return w.nextWake()
}
