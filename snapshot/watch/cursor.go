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

	// drainFor is for how long a cursor whose time is over still gets what is left in the log.
	drainFor = 10 * time.Second

	// clearFor is how long events wait while it is not known whether their resource is still served and
	// defined as before; then the cursor ends. An API server must be asked, and one with too much
	// to do keeps requests in its queue for less than this. Initial events take room for their bytes,
	// so they wait for initialClear only. clearPause is the time until it is asked again.
	clearFor     = 30 * time.Second
	initialClear = 3 * time.Second
	clearPause   = 100 * time.Millisecond

	// stateFor is how long a client may take for the state that its watch begins with, if the history
	// forgets meanwhile what comes next. Only a client that has got the whole state can go on elsewhere;
	// else it asks for all of it again. But one that reads slowly holds room.
	stateFor = 30 * time.Second
)

// Ending is why a cursor has ended.
type Ending string

// Why cursors end. Each ends in order, between two events.
const (
	// EndTimeout: the timeout that the client had asked for.
	EndTimeout Ending = "timeout"
	// EndLost: the feed has lost the span, or what it knows may be wrong.
	EndLost Ending = "lost"
	// EndBehind: the history has forgotten what the client was to be told next.
	EndBehind Ending = "behind"
	// EndShutdown: the process ends.
	EndShutdown Ending = "shutdown"
	// EndGone: the client has gone, or cannot be written to.
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
	// Bookmarks: it gets bookmarks.
	Bookmarks bool
	// Timeout is when its watch ends.
	Timeout time.Duration
	// Defined says whether the resource is still served and defined as it was when the client came. It
	// must be the same for all clients of a hub, and not wait for anything. While it is false, no change is
	// told that came since it was true.
	Defined func() bool
}

// Cursor is where one client is in the log. Take, Wait and Close are for one goroutine.
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
// The bookmark may say 20: changes up to there were dispatched, and none was for this cursor.
type Cursor struct {
	hub       *Hub
	filter    index.Filter
	after     uint64
	bookmarks bool // the client wants them
	// delivered is the revision up to which the client got everything that its filter chooses.
	delivered uint64
	// ended is set when it has been told the last that it is told.
	ended Ending

	// due is the revision of the first change that the client may not have been told of; 0 if there
	// is none. It is never above such a change.
	due atomic.Uint64
	// over: the cursor's time has passed. last: so has the time for what was left to tell then.
	// bookmarkDue: a bookmark is to be sent.
	over, last, bookmarkDue atomic.Bool
	// looking: Take has set due to 0, and may put it back. The hub counts such a cursor as one that waits.
	looking atomic.Bool
	wake    chan struct{}

	// What follows is the hub's, and its mu guards it.
	bucket    index.Bucket
	place     int // in the bucket
	begun     time.Time
	deadline  time.Time
	ending    Ending // why it ends at the deadline
	bookmark  time.Time
	at        time.Time // when it is due
	heapIndex int
	inHeap    bool
}

// Watch returns a cursor into the hub's span, or nil if the hub has ended or the span does not have
// what comes after the revision. It must be closed.
func (h *Hub) Watch(o Options) *Cursor {
	now := time.Now()
	c := &Cursor{
		hub: h, filter: o.Filter, after: o.After, bookmarks: o.Bookmarks, delivered: o.After, wake: make(chan struct{}, 1),
		bucket: o.Filter.Bucket(), begun: now, deadline: now.Add(o.Timeout), ending: EndTimeout,
	}
	if o.Bookmarks {
		c.bookmark = nextBookmark(now, c.deadline)
	}
	c.due.Store(o.After + 1)
	if span := h.latest.Load(); o.After < span.Kept() || o.After > span.To || !h.add(c, o.Defined) {
		return nil
	}
	return c
}

// nextBookmark is when a watch with a deadline gets its next bookmark; zero if it gets none.
func nextBookmark(now, deadline time.Time) time.Time {
	at := now.Add(bookmarkEvery + rand.N(bookmarkJitter)) // #nosec G404 -- no secret
	if last := deadline.Add(-beforeDeadline); last.Before(at) {
		if at = last; !at.After(now) {
			return time.Time{}
		}
	}
	return at
}

// nextTime is when the cursor is due.
func (c *Cursor) nextTime() time.Time {
	if !c.bookmark.IsZero() && c.bookmark.Before(c.deadline) {
		return c.bookmark
	}
	return c.deadline
}

// timer does what is due at a time, and returns when the cursor is due again.
func (c *Cursor) timer(now time.Time) time.Time {
	if !now.Before(c.deadline) {
		c.last.Store(c.over.Load())
		c.over.Store(true)
		c.wakeUp()
		return now.Add(drainFor)
	}
	c.bookmarkDue.Store(true)
	c.wakeUp()
	c.bookmark = nextBookmark(now, c.deadline)
	return c.nextTime()
}

// changed tells the cursor of a change at a revision that may be for it.
func (c *Cursor) changed(revision uint64) {
	c.due.CompareAndSwap(0, revision) // if there is an earlier one, all that follows it is looked at
	c.wakeUp()                        // always: the cursor may have looked before this change was cleared
}

func (c *Cursor) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default: // it is awake, or about to be
	}
}

// Wait waits until there may be something to tell, or ctx ends.
func (c *Cursor) Wait(ctx context.Context) {
	select {
	case <-c.wake:
	case <-ctx.Done():
	}
}

// Take puts the events into b that the client is to be told now. If there are neither events nor an
// ending, there is nothing to tell before [Cursor.Wait] returns. After an ending nothing more is
// told. If ctx has ended, it is [EndGone].
func (c *Cursor) Take(ctx context.Context, b *Batch) (end Ending) {
	b.Reset()
	if end := cmp.Or(c.ended, c.timedOut(ctx)); end != "" {
		return end
	}
	over := c.over.Load()
	// The order counts, dispatched before due and due before cleared: so every change up to dispatched that is
	// for this cursor is in due, or was told.
	dispatched := c.hub.dispatched.Load()
	c.looking.Store(true)
	defer c.looking.Store(false)
	due, more := c.due.Swap(0), false
	span := c.hub.cleared.Load()
	if due != 0 {
		more, end = c.replay(b, span, due)
	}
	// A last bookmark lets the client resume at what is newest, which others have in memory too.
	if !more && dispatched <= span.To && (over && c.bookmarks || c.bookmarkDue.Swap(false)) {
		if plain, at := c.hub.Form().Plain, max(c.delivered, dispatched); plain != nil && at > c.after {
			b.copied = plain.AppendTo(b.copied, at)
			b.Events++
		}
	}
	if c.hub.lost.Load() { // also since a moment
		b.Reset()
		more, end = false, ""
	}
	if end != "" {
		b.Reset()
		return end
	}
	if over && !more {
		c.ended = c.why()
	}
	c.hub.counts.delivered.Add(uint64(b.Events)) // #nosec G115 -- a count
	if b.Events == 0 {
		end = c.ended
	}
	b.More = more || c.ended != ""
	return end
}

// timeOver is why the cursor's time is over, though there may be something left to tell; "" if it is
// not.
func (c *Cursor) timeOver(ctx context.Context) Ending {
	switch {
	case ctx.Err() != nil:
		return EndGone
	case c.over.Load():
		return c.why()
	}
	return ""
}

// timedOut is the ending of a cursor whose client has gone, or whose time has passed, to which
// nothing more is told. At a timeout kube-apiserver does not tell either what is left.
func (c *Cursor) timedOut(ctx context.Context) Ending {
	if end := c.timeOver(ctx); end == EndGone || end == EndTimeout || c.last.Load() {
		return end
	}
	return ""
}

// Interrupted is why a client may be told nothing more of the state that its watch begins with; ""
// if it may. While that is not known, it waits a little. The whole state is told even if what comes
// next is forgotten meanwhile, unless that takes too long.
func (c *Cursor) Interrupted(ctx context.Context) Ending {
	for begun := time.Now(); ; clock.Sleep(ctx, clearPause) {
		defined, end := c.hub.defined(), c.timedOut(ctx)
		switch {
		case end != "":
			return end
		case c.hub.lost.Load():
			return EndLost
		case c.hub.latest.Load().Kept() > c.after && time.Since(c.begun) >= stateFor:
			return EndBehind
		case defined:
			return ""
		case time.Since(begun) >= initialClear:
			return EndLost
		}
	}
}

// InitialSent says that the client has been told all of the state that its watch begins with: from now
// on it follows.
func (c *Cursor) InitialSent() {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	c.begun = time.Now()
}

// AwaitEnd waits, while nothing is told, until a cursor may end for a reason. Unless its client has
// done that or asked for it, it ends at a moment of its own, and not in the first second after it began
// to follow. AwaitEnd returns why it ends then.
func (c *Cursor) AwaitEnd(ctx context.Context, why Ending) Ending {
	if why == EndTimeout || why == EndGone {
		return why
	}
	if !c.over.Load() {
		c.hub.endSoon(c, why)
		for why = c.timeOver(ctx); why == ""; why = c.timeOver(ctx) {
			c.Wait(ctx)
		}
	}
	clock.Sleep(ctx, time.Until(c.begun.Add(atLeast)))
	return why
}

// why is why the cursor ends when its time is over.
func (c *Cursor) why() Ending {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	return c.ending
}

// replay puts the changes from a revision on into a batch that the cursor has not told, as many as
// fit. More says that some are left. With an ending they cannot be told: the history has forgotten
// some, or one cannot be written.
func (c *Cursor) replay(b *Batch, span *Span, from uint64) (more bool, end Ending) {
	if from > span.To { // nothing, or what is not cleared
		if from <= c.hub.latest.Load().To {
			c.stillDue(from)
		}
		return false, ""
	}
	form := c.hub.Form()
	versions := &span.Versions
	after := max(c.delivered, from-1)
	if after < span.Kept() {
		return false, EndBehind
	}
	for i := versions.FirstAfter(after); i < versions.Len(); i++ {
		v := versions.At(i)
		if kind, o := c.filter.Event(v.Change); o != nil {
			var added bool
			var err error
			if b.Events == 0 && i == versions.Len()-1 {
				added, err = true, c.hub.addNewest(b, form, kind, o, v.Revision)
			} else {
				added, err = b.add(form, kind, o, v.Revision)
			}
			switch {
			case err != nil:
				return false, EndLost
			case !added:
				c.stillDue(v.Revision)
				return true, ""
			}
		}
		c.delivered = v.Revision
	}
	c.delivered = max(c.delivered, span.To)
	return false, ""
}

// stillDue notes that a change was left for the next time.
func (c *Cursor) stillDue(revision uint64) {
	for {
		is := c.due.Load()
		if is != 0 && is <= revision || c.due.CompareAndSwap(is, revision) {
			return
		}
	}
}

// Close ends the cursor, for a reason that is counted; "" if its client was told nothing, and is not
// going to be.
func (c *Cursor) Close(why Ending) {
	c.hub.remove(c)
	if why != "" {
		c.hub.counts.end(why)
	}
}
