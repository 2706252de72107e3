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
// their ends with those of all broadcasters that have the same pacer.
func NewBroadcaster(form Form, span Span, counts *Counts, pacer *Pacer) *Broadcaster {
	b := &Broadcaster{counts: counts, pacer: pacer, signal: make(chan struct{}, 1), buckets: map[index.Bucket][]*Watcher{}}
	b.form.Store(&form)
	b.published.Store(&span)
	b.confirmed.Store(&span)
	return b
}

// Form returns how events are written.
func (b *Broadcaster) Form() *Form { return b.form.Load() }

// Learn takes in how the upstream writes bookmarks that are no end of initial events.
func (b *Broadcaster) Learn(plain *wire.Bookmark) { b.change(func(f *Form) { f.Plain = plain }) }

// SetEnvelope takes in an envelope that also knows the form of items. No event was told before.
func (b *Broadcaster) SetEnvelope(envelope *wire.Envelope) {
	b.change(func(f *Form) { f.Envelope = envelope })
}

// change makes a change of the form. No change of another goroutine is lost.
func (b *Broadcaster) change(edit func(*Form)) {
	for {
		previous := b.form.Load()
		next := *previous
		edit(&next)
		if b.form.CompareAndSwap(previous, &next) {
			return
		}
	}
}

// Publish makes a longer span the current one, or one from which the oldest changes were forgotten.
func (b *Broadcaster) Publish(span Span) {
	if b.dispatched.Load() < span.Kept() { // where memory is tight, history is cut behind each change
		b.mu.Lock()
		b.finishLocked()
		b.mu.Unlock()
	}
	b.published.Store(&span)
	b.wakeDispatcher()
}

// finishLocked has watchers told what was published until now, unless that may not become confirmed.
func (b *Broadcaster) finishLocked() {
	if !b.running {
		return
	}
	published := b.published.Load()
	if b.waitingSince.IsZero() && b.defined() {
		b.confirmed.Store(published)
	}
	b.dispatchLocked(published)
}

// Renew makes a span the current one that begins anew, where the one before has come to. A watcher that has
// still to be told something of the span before ends as [EndBehind]; all others go on. Form is how events are
// written now.
func (b *Broadcaster) Renew(form Form, span Span) {
	b.change(func(f *Form) {
		plain := f.Plain
		if *f = form; f.Plain == nil {
			f.Plain = plain
		}
	})
	b.mu.Lock()
	b.finishLocked()
	b.published.Store(&span)
	b.confirmed.Store(&span)
	b.dispatched.Store(span.To)
	b.mu.Unlock()
	b.wakeDispatcher()
}

func (b *Broadcaster) wakeDispatcher() {
	select {
	case b.signal <- struct{}{}:
	default: // it is told already
	}
}

// End ends all watchers, each at a moment of its own within the next seconds, and lets none begin.
// They are told what is left in the span first, for a few seconds more at most; or, if what is known may be
// wrong (lost), nothing.
func (b *Broadcaster) End(lost bool) {
	if lost {
		b.lost.Store(true)
	}
	b.EndWithin(longestEnd, EndLost)
	if lost { // nobody is told what is in the span, so its memory is let go of
		to := b.published.Load().To
		b.published.Store(&Span{From: to, To: to})
		b.confirmed.Store(&Span{From: to, To: to})
	}
}

// EndWithin ends all watchers within a time, for a reason, and lets none begin. What comes meanwhile
// is told.
func (b *Broadcaster) EndWithin(longest time.Duration, why Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended && why == EndLost {
		return // each has its moment
	}
	b.ended = true
	all := make([]*Watcher, 0, b.watchers)
	for _, bucket := range b.buckets {
		all = append(all, bucket...)
	}
	b.endLocked(all, longest, why)
	b.wakeDispatcher()
}

// endSoon ends a watcher for a reason as if its span were lost, unless that is planned already.
func (b *Broadcaster) endSoon(w *Watcher, why Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.ending != EndLost {
		b.endLocked([]*Watcher{w}, longestEnd, why)
		b.wakeDispatcher()
	}
}

// endLocked ends some watchers within a time, each at a moment of its own.
func (b *Broadcaster) endLocked(some []*Watcher, longest time.Duration, why Ending) {
	now := time.Now()
	after, within := b.pacer.Plan(now, len(some), longest)
	for _, w := range some {
		if w.pastDeadline.Load() { // it is told what is left, for as long as it has for that
			continue
		}
		at := now.Add(after)
		if born := w.begun.Add(atLeast); longest >= atLeast && born.After(at) {
			at = born
		}
		at = at.Add(rand.N(within)) // #nosec G404 -- no secret
		if at.Before(w.deadline) {
			w.deadline, w.ending = at, why
		}
		b.times.set(w, w.nextWake())
	}
}

// add lets a watcher begin, unless the broadcaster has ended. defined is the watcher's [Options].Defined.
func (b *Broadcaster) add(w *Watcher, defined func() bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	w.place = len(b.buckets[w.bucket])
	b.buckets[w.bucket] = append(b.buckets[w.bucket], w)
	b.wanted[w.bucket.Kind]++
	b.watchers++
	b.times.set(w, w.nextWake())
	if !b.running {
		b.running = true
		// Watchers look by themselves at what is there when they begin.
		published := b.published.Load()
		b.confirmed.Store(published)
		b.dispatched.Store(published.To)
		b.defined, b.waitingSince = defined, time.Time{}
		go b.run()
	} else {
		b.wakeDispatcher()
	}
	b.counts.open.Add(1)
	return true
}

// remove forgets a watcher.
func (b *Broadcaster) remove(w *Watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bucket := b.buckets[w.bucket]
	last := len(bucket) - 1
	bucket[w.place] = bucket[last]
	bucket[w.place].place = w.place
	bucket[last] = nil
	if last == 0 {
		delete(b.buckets, w.bucket)
	} else {
		b.buckets[w.bucket] = bucket[:last]
	}
	b.wanted[w.bucket.Kind]--
	b.watchers--
	b.times.remove(w)
	if b.watchers == 0 {
		b.wakeDispatcher() // run ends
	}
	b.counts.open.Add(-1)
}

// AwaitTold waits until all watchers were told what is published, for atMost.
func (b *Broadcaster) AwaitTold(ctx context.Context, atMost time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for told := false; !told && clock.Sleep(ctx, lookPause); {
		b.mu.Lock()
		told = b.dispatched.Load() >= b.published.Load().To && len(b.waitingLocked()) == 0
		b.mu.Unlock()
	}
}

// waitingLocked returns the watchers that have still to be told something.
func (b *Broadcaster) waitingLocked() (waiting []*Watcher) {
	for _, bucket := range b.buckets {
		for _, w := range bucket {
			// Take may put due back between the first look at it and the one at looking.
			if w.due.Load() != 0 || w.bookmarkDue.Load() || w.looking.Load() || w.due.Load() != 0 {
				waiting = append(waiting, w)
			}
		}
	}
	return waiting
}

// Watchers is how many there are.
func (b *Broadcaster) Watchers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.watchers
}

// run wakes watchers until there is none.
func (b *Broadcaster) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for b.turn(timer) {
		select {
		case <-b.signal:
		case <-timer.C:
		}
	}
}

// turn makes confirmed what may be, wakes the watchers that have something to do, and sets the timer for the
// next one that will. It says whether there are any left.
func (b *Broadcaster) turn(timer *time.Timer) bool {
	published, canConfirm := b.published.Load(), b.canConfirm(time.Now())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watchers == 0 {
		b.running = false
		return false
	}
	now, next := time.Now(), time.Hour
	// A watcher may have looked at what was dispatched and not confirmed, and nothing else wakes it.
	confirmed := b.confirmed.Load() // End replaces it without the lock, but sets lost before
	early := confirmed.To < b.dispatched.Load()
	if canConfirm && published.To >= confirmed.To && !b.lost.Load() { // else there is a newer one by now
		b.confirmed.Store(published)
	}
	b.dispatchLocked(published)
	if b.awaitConfirmedLocked(canConfirm, early, now) {
		next = askPause
	}
	for w := b.times.first(); w != nil && !w.wakeAt.After(now); w = b.times.first() {
		b.times.set(w, w.onTimer(now))
	}
	if w := b.times.first(); w != nil {
		next = min(next, w.wakeAt.Sub(now))
	}
	timer.Reset(next)
	return true
}

// canConfirm asks whether what is published may be confirmed. While it may not, the broadcaster asks only once in
// askPause.
func (b *Broadcaster) canConfirm(now time.Time) bool {
	if b.published.Load() == b.confirmed.Load() {
		return true
	}
	b.mu.Lock()
	tooSoon := !b.waitingSince.IsZero() && now.Sub(b.askedAt) < askPause
	if !tooSoon {
		b.askedAt = now
	}
	b.mu.Unlock()
	return !tooSoon && b.defined()
}

// awaitConfirmedLocked wakes the watchers that wait for what is published to become confirmed, if it has; if it
// has not for long, they end. It returns whether any waits. early: something was dispatched before it was
// confirmed.
func (b *Broadcaster) awaitConfirmedLocked(canConfirm, early bool, now time.Time) bool {
	if canConfirm && !early && b.waitingSince.IsZero() {
		return false
	}
	waiting := b.waitingLocked()
	switch {
	case canConfirm, len(waiting) == 0:
		b.waitingSince = time.Time{}
		for _, w := range waiting {
			w.wakeUp()
		}
		return false
	case b.waitingSince.IsZero():
		b.waitingSince = now
	case now.Sub(b.waitingSince) >= definedWait:
		b.waitingSince = now
		b.endLocked(waiting, longestEnd, EndLost)
	}
	return true
}

// dispatchLocked dispatches what came since the last time: it wakes the watchers whose buckets that touches.
func (b *Broadcaster) dispatchLocked(span *Span) {
	versions := &span.Versions
	dispatched := b.dispatched.Load()
	b.dispatching.Store(max(dispatched, span.To))
	if dispatched < span.Kept() {
		// The history was cut before all of it was dispatched: nobody knows whom that was for.
		b.wakeLocked(dispatched+1, func(index.Bucket) bool { return true })
	}
	for i := versions.FirstAfter(dispatched); i < versions.Len(); i++ {
		v := versions.At(i)
		wake := func(bucket index.Bucket) {
			for _, w := range b.buckets[bucket] {
				w.changed(v.Revision)
			}
		}
		for _, o := range []*index.Object{v.Change.Before, v.Change.After} {
			if o != nil && !o.EachBucket(&b.wanted, wake) {
				b.wakeLocked(v.Revision, o.HasLabelOf)
			}
		}
	}
	b.dispatched.Store(max(dispatched, span.To))
}

// wakeLocked wakes all watchers of the buckets that are chosen.
func (b *Broadcaster) wakeLocked(revision uint64, chosen func(index.Bucket) bool) {
	for bucket, watchers := range b.buckets {
		if !chosen(bucket) {
			continue
		}
		for _, w := range watchers {
			w.changed(revision)
		}
	}
}
