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

// Span has the known states of a collection at one moment, those in [From, To].
type Span struct {
	Versions index.History
	From, To uint64
}

// Kept returns the lowest revision after which all changes are known. The version that is the state at From is still
// there. If it was loaded, changes are known from its revision on. If a change made it, changes are known from the
// version before it on, even if that version was forgotten.
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

// Form is the form in which the upstream writes the events of a collection. It is immutable.
type Form struct {
	Envelope *wire.Envelope
	// ContentType is the content type of the upstream's watches.
	ContentType string
	// Compressed reports whether the upstream compresses a streaming list with bookmarks for a client that accepts gzip.
	Compressed bool
	// InitialEnd is the bookmark that ends the initial events; nil if the upstream has none, or it was not learned.
	// Plain is any other bookmark; nil until one was learned.
	InitialEnd, Plain *wire.Bookmark
}

// Broadcaster wakes the watchers of one span when there is something to tell them. All methods are safe for concurrent
// use, but Publish and Renew must not overlap.
//
// A change goes through three stages. The feed publishes it. It is dispatched when the watchers whose buckets it touches
// were woken, and have recorded that it is due. It is confirmed when the broadcaster has asked, after it was published,
// whether the resource is still defined as before. Only then do watchers tell it. A change may be dispatched before it
// is confirmed, or confirmed before it is dispatched; it is always published before both.
type Broadcaster struct {
	form atomic.Pointer[Form]
	// published is the newest span, confirmed the one whose changes watchers may tell.
	published, confirmed atomic.Pointer[Span]
	// dispatched is the revision up to which changes were dispatched, dispatching the one up to which that has begun.
	dispatched, dispatching atomic.Uint64
	// lost reports whether the published states may be wrong; then nothing more is told.
	lost    atomic.Bool
	defined func() bool // [Options].Defined of the first watcher
	// newest is the newest event, encoded, if it is small and a client was told it.
	newest atomic.Pointer[encodedEvent]
	counts *Counts
	pacer  *Pacer
	// signal tells run that there is something to do.
	signal chan struct{}

	mu       sync.Mutex
	running  bool
	ended    bool // no watcher may begin
	watchers int
	wanted   [index.BucketKinds]int // the number of watchers in buckets of each kind
	buckets  map[index.Bucket][]*Watcher
	times    schedule
	// waitingSince is the time at which the first watcher began to wait for a change to be confirmed, or at which
	// those that had waited too long began to end; zero if none waits. askedAt is the time of the last call of defined
	// for them.
	waitingSince, askedAt time.Time
}

// NewBroadcaster returns the broadcaster of a span. It counts its watchers and their ends in counts, and spreads their
// ends together with those of all broadcasters that have the same pacer.
func NewBroadcaster(form Form, span Span, counts *Counts, pacer *Pacer) *Broadcaster {
	b := &Broadcaster{counts: counts, pacer: pacer, signal: make(chan struct{}, 1), buckets: map[index.Bucket][]*Watcher{}}
	b.form.Store(&form)
	b.published.Store(&span)
	b.confirmed.Store(&span)
	return b
}

// Form returns the form in which events are written.
func (b *Broadcaster) Form() *Form { return b.form.Load() }

// Learn sets the form of bookmarks other than the one that ends initial events.
func (b *Broadcaster) Learn(plain *wire.Bookmark) { b.updateForm(func(f *Form) { f.Plain = plain }) }

// SetEnvelope replaces the envelope by one in which the form of items is known. No event was told before.
func (b *Broadcaster) SetEnvelope(envelope *wire.Envelope) {
	b.updateForm(func(f *Form) { f.Envelope = envelope })
}

// updateForm changes a copy of the form and stores it. It retries, so that no other goroutine's change is lost.
func (b *Broadcaster) updateForm(edit func(*Form)) {
	for {
		previous := b.form.Load()
		next := *previous
		edit(&next)
		if b.form.CompareAndSwap(previous, &next) {
			return
		}
	}
}

// Publish replaces the span by a longer one, or by one from which the oldest changes were forgotten.
func (b *Broadcaster) Publish(span Span) {
	if b.dispatched.Load() < span.Kept() { // as where memory is tight, and history is cut after each change
		b.mu.Lock()
		b.dispatchPublishedLocked()
		b.mu.Unlock()
	}
	b.published.Store(&span)
	b.wakeDispatcher()
}

// dispatchPublishedLocked dispatches all that is published before its span is replaced, and confirms it if it may be.
func (b *Broadcaster) dispatchPublishedLocked() {
	if !b.running {
		return
	}
	published := b.published.Load()
	if b.waitingSince.IsZero() && b.defined() {
		b.confirmed.Store(published)
	}
	b.dispatchLocked(published)
}

// Renew replaces the span by one that begins at its end, and sets the form in which events are written from now on. A
// watcher that has still to be told something of the old span ends as [EndBehind]; all others go on.
func (b *Broadcaster) Renew(form Form, span Span) {
	b.updateForm(func(f *Form) {
		plain := f.Plain
		*f = form
		if f.Plain == nil {
			f.Plain = plain
		}
	})
	b.mu.Lock()
	b.dispatchPublishedLocked()
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

// End ends all watchers, each at a moment of its own within the next seconds, and lets none begin. Before their ends they
// are told what is left in the span, for drainTimeout at most. With lost, the published states may be wrong, and they are
// told nothing more.
func (b *Broadcaster) End(lost bool) {
	if lost {
		b.lost.Store(true)
	}
	b.EndWithin(maxEndSpread, EndLost)
	if lost { // free the memory of the span, of which nothing is told any more
		to := b.published.Load().To
		b.published.Store(&Span{From: to, To: to})
		b.confirmed.Store(&Span{From: to, To: to})
	}
}

// EndWithin ends all watchers within a time, for a reason, and lets none begin. Changes that come meanwhile are told.
func (b *Broadcaster) EndWithin(longest time.Duration, why Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended && why == EndLost {
		return // their ends are planned already
	}
	b.ended = true
	all := make([]*Watcher, 0, b.watchers)
	for _, bucket := range b.buckets {
		all = append(all, bucket...)
	}
	b.endLocked(all, longest, why)
	b.wakeDispatcher()
}

// endSoon plans the end of a watcher within maxEndSpread, unless it is planned already.
func (b *Broadcaster) endSoon(w *Watcher, why Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.ending != EndLost {
		b.endLocked([]*Watcher{w}, maxEndSpread, why)
		b.wakeDispatcher()
	}
}

// endLocked plans the ends of watchers within a time, each at a moment of its own.
func (b *Broadcaster) endLocked(watchers []*Watcher, longest time.Duration, why Ending) {
	now := time.Now()
	after, within := b.pacer.Plan(now, len(watchers), longest)
	for _, w := range watchers {
		if w.pastDeadline.Load() { // it is ending already, and is told what is left
			continue
		}
		at := now.Add(after)
		if earliest := w.begun.Add(minWatchLife); longest >= minWatchLife && earliest.After(at) {
			at = earliest
		}
		at = at.Add(rand.N(within)) // #nosec G404 -- no secret
		if at.Before(w.deadline) {
			w.deadline = at
			w.ending = why
		}
		b.times.set(w, w.nextWake())
	}
}

// add adds a watcher. It returns false if the broadcaster has ended. defined is the watcher's [Options].Defined.
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
		// What is published already counts as dispatched: each watcher looks at it when it begins.
		published := b.published.Load()
		b.confirmed.Store(published)
		b.dispatched.Store(published.To)
		b.defined = defined
		b.waitingSince = time.Time{}
		go b.run()
	} else {
		b.wakeDispatcher()
	}
	b.counts.open.Add(1)
	return true
}

// remove removes a watcher.
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

// AwaitTold waits for atMost until all watchers were told what is published.
func (b *Broadcaster) AwaitTold(ctx context.Context, atMost time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for told := false; !told && clock.Sleep(ctx, toldPollInterval); {
		b.mu.Lock()
		told = b.dispatched.Load() >= b.published.Load().To && len(b.waitingLocked()) == 0
		b.mu.Unlock()
	}
}

// waitingLocked returns the watchers that have still to be told something.
func (b *Broadcaster) waitingLocked() (waiting []*Watcher) {
	for _, bucket := range b.buckets {
		for _, w := range bucket {
			// due is read again after looking: Take may have put it back in between.
			if w.due.Load() != 0 || w.bookmarkDue.Load() || w.looking.Load() || w.due.Load() != 0 {
				waiting = append(waiting, w)
			}
		}
	}
	return waiting
}

// Watchers returns the number of watchers.
func (b *Broadcaster) Watchers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.watchers
}

// run works until there are no watchers any more.
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

// turn confirms what may be confirmed, wakes the watchers that have something to do, and sets the timer for the next one
// that will. It returns false if there are no watchers any more.
func (b *Broadcaster) turn(timer *time.Timer) bool {
	published := b.published.Load() // before canConfirm: what is published later needs a later answer
	canConfirm := b.canConfirm(time.Now())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watchers == 0 {
		b.running = false
		return false
	}
	now := time.Now()
	next := time.Hour
	// A watcher may have looked at a change that was dispatched before it was confirmed. Nothing else wakes it.
	confirmed := b.confirmed.Load() // End replaces it without the lock, but sets lost before
	dispatchedEarly := confirmed.To < b.dispatched.Load()
	if canConfirm && published.To >= confirmed.To && !b.lost.Load() { // else a newer span was confirmed meanwhile
		b.confirmed.Store(published)
	}
	b.dispatchLocked(published)
	if b.awaitConfirmedLocked(canConfirm, dispatchedEarly, now) {
		next = definedPollInterval
	}
	for w := b.times.first(); w != nil && !w.wakeAt.After(now); w = b.times.first() {
		b.times.set(w, w.handleTimer(now))
	}
	if w := b.times.first(); w != nil {
		next = min(next, w.wakeAt.Sub(now))
	}
	timer.Reset(next)
	return true
}

// canConfirm asks whether what is published may be confirmed. After a no, it asks only once per definedPollInterval.
func (b *Broadcaster) canConfirm(now time.Time) bool {
	if b.published.Load() == b.confirmed.Load() {
		return true
	}
	b.mu.Lock()
	tooSoon := !b.waitingSince.IsZero() && now.Sub(b.askedAt) < definedPollInterval
	if !tooSoon {
		b.askedAt = now
	}
	b.mu.Unlock()
	return !tooSoon && b.defined()
}

// awaitConfirmedLocked handles the watchers that wait for a change to be confirmed. It wakes them if it was, and ends
// them if they have waited for too long. It reports whether any still wait. dispatchedEarly says that a change was
// dispatched before it was confirmed.
func (b *Broadcaster) awaitConfirmedLocked(canConfirm, dispatchedEarly bool, now time.Time) bool {
	if canConfirm && !dispatchedEarly && b.waitingSince.IsZero() {
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
	case now.Sub(b.waitingSince) >= definedTimeout:
		b.waitingSince = now
		b.endLocked(waiting, maxEndSpread, EndLost)
	}
	return true
}

// dispatchLocked dispatches the changes that came since the last time: it wakes the watchers whose buckets they touch.
func (b *Broadcaster) dispatchLocked(span *Span) {
	versions := &span.Versions
	dispatched := b.dispatched.Load()
	b.dispatching.Store(max(dispatched, span.To))
	if dispatched < span.Kept() {
		// The history was cut before all of it was dispatched, so any watcher may miss something.
		b.wakeBucketsLocked(dispatched+1, func(index.Bucket) bool { return true })
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
				b.wakeBucketsLocked(v.Revision, o.HasLabelOf)
			}
		}
	}
	b.dispatched.Store(max(dispatched, span.To))
}

// wakeBucketsLocked wakes all watchers of the buckets that are chosen.
func (b *Broadcaster) wakeBucketsLocked(revision uint64, chosen func(index.Bucket) bool) {
	for bucket, watchers := range b.buckets {
		if !chosen(bucket) {
			continue
		}
		for _, w := range watchers {
			w.changed(revision)
		}
	}
}
