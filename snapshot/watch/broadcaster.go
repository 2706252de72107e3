package watch

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Span is what is known of a live span at one moment: its states in [From, To].
type Span struct {
	Versions index.History
	From, To uint64
}

// Kept is the revision after which no change is missing. The version at From, or the last one before
// it, is still there. If it was loaded, changes are known from its revision on. If a change made it,
// changes are known from the version before it on, even if that version was forgotten.
func (s *Span) Kept() uint64 {
	i := s.Versions.FirstAfter(s.From) - 1
	switch {
	case i < 0:
		return s.From
	case s.Versions.At(i).Change.After == nil:
		return s.Versions.At(i).Revision
	case i == 0:
		return s.Versions.Forgotten()
	}
	return s.Versions.At(i - 1).Revision
}

// Form is how the upstream writes the events of a collection. It is immutable.
type Form struct {
	Envelope *wire.Envelope
	// ContentType is that of the upstream's watches.
	ContentType string
	// Compressed reports whether the upstream compresses a streaming list with bookmarks, if its client takes gzip.
	Compressed bool
	// InitialEnd is the bookmark that ends the initial events; nil if the upstream has none, or it
	// was not learned. Plain is any other bookmark; nil until one was learned.
	InitialEnd, Plain *wire.Bookmark
}

// Broadcaster wakes the watchers into one live span when there is something to tell them. All methods are
// safe for concurrent use, but Publish and Renew must not overlap.
//
// A change goes through three stages. It is published by the feed. It is dispatched: the watchers that it may
// be for are woken, and note that it is due. It is confirmed when the broadcaster has asked, after it was published,
// whether the resource is still defined as before. Only then do watchers tell it. What is dispatched may not be
// confirmed yet, and the other way round; neither is ever beyond what is published.
type Broadcaster struct {
	form atomic.Pointer[Form]
	// published is the newest span, confirmed the one that watchers may tell.
	published, confirmed atomic.Pointer[Span]
	// dispatched is the revision up to which changes were dispatched, dispatching the one up to which that has begun.
	dispatched, dispatching atomic.Uint64
	// lost reports whether what is known may be wrong; then nothing more is told.
	lost    atomic.Bool
	defined func() bool // [Options].Defined of the first watcher
	// newest is the newest event, if it is small and a client was told it.
	newest atomic.Pointer[encodedEvent]
	counts *Counts
	pacer  *Pacer
	// signal tells run that there is something to do.
	signal chan struct{}

	mu       sync.Mutex
	running  bool
	ended    bool // no watcher may begin
	watchers int
	wanted   [index.BucketKinds]int // how many watchers there are in buckets of each kind
	buckets  map[index.Bucket][]*Watcher
	times    schedule
	// waitingSince is the time at which the first watcher began to wait for a change to be confirmed, or at which
	// those that had waited too long began to end; zero if none waits. askedAt is the time at which defined was last
	// asked for them.
	waitingSince, askedAt time.Time
}

// NewBroadcaster returns the broadcaster of a span. It counts what becomes of its watchers in counts, and spreads
// their ends with those of all hubs that have the same pacer.
func NewBroadcaster(form Form, span Span, counts *Counts, pacer *Pacer) *Broadcaster {
	h := &Broadcaster{counts: counts, pacer: pacer, signal: make(chan struct{}, 1), buckets: map[index.Bucket][]*Watcher{}}
	h.form.Store(&form)
	h.published.Store(&span)
	h.confirmed.Store(&span)
	return h
}

// Form returns how events are written.
func (h *Broadcaster) Form() *Form { return h.form.Load() }

// Learn takes in how the upstream writes bookmarks that are no end of initial events.
func (h *Broadcaster) Learn(plain *wire.Bookmark) { h.change(func(f *Form) { f.Plain = plain }) }

// SetEnvelope takes in an envelope that also knows the form of items. No event was told before.
func (h *Broadcaster) SetEnvelope(envelope *wire.Envelope) {
	h.change(func(f *Form) { f.Envelope = envelope })
}

// change makes a change of the form. No change of another goroutine is lost.
func (h *Broadcaster) change(edit func(*Form)) {
	for {
		previous := h.form.Load()
		next := *previous
		edit(&next)
		if h.form.CompareAndSwap(previous, &next) {
			return
		}
	}
}

// Publish makes a longer span the current one, or one from which the oldest changes were forgotten.
func (h *Broadcaster) Publish(span Span) {
	if h.dispatched.Load() < span.Kept() { // where memory is tight, history is cut behind each change
		h.mu.Lock()
		h.finishLocked()
		h.mu.Unlock()
	}
	h.published.Store(&span)
	h.wakeDispatcher()
}

// finishLocked has watchers told what was published until now, unless that may not become confirmed.
func (h *Broadcaster) finishLocked() {
	if !h.running {
		return
	}
	published := h.published.Load()
	if h.waitingSince.IsZero() && h.defined() {
		h.confirmed.Store(published)
	}
	h.dispatchLocked(published)
}

// Renew makes a span the current one that begins anew, where the one before has come to. A watcher that has
// still to be told something of the span before ends as [EndBehind]; all others go on. Form is how events are
// written now.
func (h *Broadcaster) Renew(form Form, span Span) {
	h.change(func(f *Form) {
		plain := f.Plain
		if *f = form; f.Plain == nil {
			f.Plain = plain
		}
	})
	h.mu.Lock()
	h.finishLocked()
	h.published.Store(&span)
	h.confirmed.Store(&span)
	h.dispatched.Store(span.To)
	h.mu.Unlock()
	h.wakeDispatcher()
}

func (h *Broadcaster) wakeDispatcher() {
	select {
	case h.signal <- struct{}{}:
	default: // it is told already
	}
}

// End ends all watchers, each at a moment of its own within the next seconds, and lets none begin.
// They are told what is left in the span first, for a few seconds more at most; or, if what is known may be
// wrong (lost), nothing.
func (h *Broadcaster) End(lost bool) {
	if lost {
		h.lost.Store(true)
	}
	h.EndWithin(longestEnd, EndLost)
	if lost { // nobody is told what is in the span, so its memory is let go of
		to := h.published.Load().To
		h.published.Store(&Span{From: to, To: to})
		h.confirmed.Store(&Span{From: to, To: to})
	}
}

// EndWithin ends all watchers within a time, for a reason, and lets none begin. What comes meanwhile
// is told.
func (h *Broadcaster) EndWithin(longest time.Duration, why Ending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended && why == EndLost {
		return // each has its moment
	}
	h.ended = true
	all := make([]*Watcher, 0, h.watchers)
	for _, bucket := range h.buckets {
		all = append(all, bucket...)
	}
	h.endLocked(all, longest, why)
	h.wakeDispatcher()
}

// endSoon ends a watcher for a reason as if its span were lost, unless that is planned already.
func (h *Broadcaster) endSoon(c *Watcher, why Ending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.ending != EndLost {
		h.endLocked([]*Watcher{c}, longestEnd, why)
		h.wakeDispatcher()
	}
}

// endLocked ends some watchers within a time, each at a moment of its own.
func (h *Broadcaster) endLocked(some []*Watcher, longest time.Duration, why Ending) {
	now := time.Now()
	after, within := h.pacer.Plan(now, len(some), longest)
	for _, c := range some {
		if c.pastDeadline.Load() { // it is told what is left, for as long as it has for that
			continue
		}
		at := now.Add(after)
		if born := c.begun.Add(atLeast); longest >= atLeast && born.After(at) {
			at = born
		}
		at = at.Add(rand.N(within)) // #nosec G404 -- no secret
		if at.Before(c.deadline) {
			c.deadline, c.ending = at, why
		}
		h.times.set(c, c.nextWake())
	}
}

// add lets a watcher begin, unless the broadcaster has ended. defined is the watcher's [Options].Defined.
func (h *Broadcaster) add(c *Watcher, defined func() bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return false
	}
	c.place = len(h.buckets[c.bucket])
	h.buckets[c.bucket] = append(h.buckets[c.bucket], c)
	h.wanted[c.bucket.Kind]++
	h.watchers++
	h.times.set(c, c.nextWake())
	if !h.running {
		h.running = true
		// Watchers look by themselves at what is there when they begin.
		published := h.published.Load()
		h.confirmed.Store(published)
		h.dispatched.Store(published.To)
		h.defined, h.waitingSince = defined, time.Time{}
		go h.run()
	} else {
		h.wakeDispatcher()
	}
	h.counts.open.Add(1)
	return true
}

// remove forgets a watcher.
func (h *Broadcaster) remove(c *Watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	bucket := h.buckets[c.bucket]
	last := len(bucket) - 1
	bucket[c.place] = bucket[last]
	bucket[c.place].place = c.place
	bucket[last] = nil
	if last == 0 {
		delete(h.buckets, c.bucket)
	} else {
		h.buckets[c.bucket] = bucket[:last]
	}
	h.wanted[c.bucket.Kind]--
	h.watchers--
	h.times.remove(c)
	if h.watchers == 0 {
		h.wakeDispatcher() // run ends
	}
	h.counts.open.Add(-1)
}

// AwaitTold waits until all watchers were told what is published, for atMost.
func (h *Broadcaster) AwaitTold(ctx context.Context, atMost time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for told := false; !told && clock.Sleep(ctx, lookPause); {
		h.mu.Lock()
		told = h.dispatched.Load() >= h.published.Load().To && len(h.waitingLocked()) == 0
		h.mu.Unlock()
	}
}

// waitingLocked returns the watchers that have still to be told something.
func (h *Broadcaster) waitingLocked() (waiting []*Watcher) {
	for _, bucket := range h.buckets {
		for _, c := range bucket {
			// Take may put due back between the first look at it and the one at looking.
			if c.due.Load() != 0 || c.bookmarkDue.Load() || c.looking.Load() || c.due.Load() != 0 {
				waiting = append(waiting, c)
			}
		}
	}
	return waiting
}

// Watchers is how many there are.
func (h *Broadcaster) Watchers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.watchers
}

// run wakes watchers until there is none.
func (h *Broadcaster) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for h.turn(timer) {
		select {
		case <-h.signal:
		case <-timer.C:
		}
	}
}

// turn makes confirmed what may be, wakes the watchers that have something to do, and sets the timer for the
// next one that will. It says whether there are any left.
func (h *Broadcaster) turn(timer *time.Timer) bool {
	published, canConfirm := h.published.Load(), h.canConfirm(time.Now())
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers == 0 {
		h.running = false
		return false
	}
	now, next := time.Now(), time.Hour
	// A watcher may have looked at what was dispatched and not confirmed, and nothing else wakes it.
	confirmed := h.confirmed.Load() // End replaces it without the lock, but sets lost before
	early := confirmed.To < h.dispatched.Load()
	if canConfirm && published.To >= confirmed.To && !h.lost.Load() { // else there is a newer one by now
		h.confirmed.Store(published)
	}
	h.dispatchLocked(published)
	if h.awaitConfirmedLocked(canConfirm, early, now) {
		next = askPause
	}
	for c := h.times.first(); c != nil && !c.wakeAt.After(now); c = h.times.first() {
		h.times.set(c, c.onTimer(now))
	}
	if c := h.times.first(); c != nil {
		next = min(next, c.wakeAt.Sub(now))
	}
	timer.Reset(next)
	return true
}

// canConfirm asks whether what is published may be confirmed. While it may not, the broadcaster asks only once in
// askPause.
func (h *Broadcaster) canConfirm(now time.Time) bool {
	if h.published.Load() == h.confirmed.Load() {
		return true
	}
	h.mu.Lock()
	tooSoon := !h.waitingSince.IsZero() && now.Sub(h.askedAt) < askPause
	if !tooSoon {
		h.askedAt = now
	}
	h.mu.Unlock()
	return !tooSoon && h.defined()
}

// awaitConfirmedLocked wakes the watchers that wait for what is published to become confirmed, if it has; if it
// has not for long, they end. It returns whether any waits. early: something was dispatched before it was
// confirmed.
func (h *Broadcaster) awaitConfirmedLocked(canConfirm, early bool, now time.Time) bool {
	if canConfirm && !early && h.waitingSince.IsZero() {
		return false
	}
	waiting := h.waitingLocked()
	switch {
	case canConfirm, len(waiting) == 0:
		h.waitingSince = time.Time{}
		for _, c := range waiting {
			c.wakeUp()
		}
		return false
	case h.waitingSince.IsZero():
		h.waitingSince = now
	case now.Sub(h.waitingSince) >= definedWait:
		h.waitingSince = now
		h.endLocked(waiting, longestEnd, EndLost)
	}
	return true
}

// dispatchLocked dispatches what came since the last time: it wakes the watchers whose buckets that touches.
func (h *Broadcaster) dispatchLocked(span *Span) {
	versions := &span.Versions
	dispatched := h.dispatched.Load()
	h.dispatching.Store(max(dispatched, span.To))
	if dispatched < span.Kept() {
		// The history was cut before all of it was dispatched: nobody knows whom that was for.
		h.wakeLocked(dispatched+1, func(index.Bucket) bool { return true })
	}
	for i := versions.FirstAfter(dispatched); i < versions.Len(); i++ {
		v := versions.At(i)
		wake := func(b index.Bucket) {
			for _, c := range h.buckets[b] {
				c.changed(v.Revision)
			}
		}
		for _, o := range []*index.Object{v.Change.Before, v.Change.After} {
			if o != nil && !o.EachBucket(&h.wanted, wake) {
				h.wakeLocked(v.Revision, o.HasLabelOf)
			}
		}
	}
	h.dispatched.Store(max(dispatched, span.To))
}

// wakeLocked wakes all watchers of some buckets.
func (h *Broadcaster) wakeLocked(revision uint64, of func(index.Bucket) bool) {
	for b, watchers := range h.buckets {
		if !of(b) {
			continue
		}
		for _, c := range watchers {
			c.changed(revision)
		}
	}
}
