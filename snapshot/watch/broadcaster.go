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

// Broadcaster wakes the watchers of one span when there is something to tell them. All methods are safe for concurrent
// use, but Publish and Renew must not overlap.
//
// A change goes through three stages. The feed publishes it. It is dispatched when the watchers that must tell it
// have been woken, with a record that it is due. It is confirmed when the broadcaster has asked, after it was
// published, whether the resource is still defined as before. Only then do watchers tell it. A change may be
// dispatched before it is confirmed, or confirmed before it is dispatched; it is always published before both.
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
	buckets  map[index.Bucket][]*Watcher
	// waitingSince is the time at which the first watcher began to wait for a change to be confirmed, or at which
	// those that had waited too long began to end; zero if none waits. askedAt is the time of the last call of defined
	// for them.
	waitingSince, askedAt time.Time
}

// Span has the known states of a collection at one moment, those in [From, To].
type Span struct {
	Versions index.History
	From, To uint64
}

// RetainedAfter returns the lowest revision after which all changes are known. The version that is the state at From
// is still there. If it was loaded, changes are known from its revision on. If a change made it, that change is
// known, too, and changes are known from the version before it on, even if that version was forgotten. Two examples
// for From 25:
//
//	versions                                       RetainedAfter
//	loaded at 20, changed at 30                    20
//	changed at 20 and 30, the one at 10 forgotten  10
func (s *Span) RetainedAfter() uint64 {
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

// SetBookmark sets the form of bookmarks other than the one that ends initial events.
func (b *Broadcaster) SetBookmark(plain *wire.Bookmark) {
	b.updateForm(func(f *Form) { f.Plain = plain })
}

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
	if b.dispatched.Load() < span.RetainedAfter() { // as where memory is tight, and history is cut after each change
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

// wakeDispatcher makes run take another turn.
func (b *Broadcaster) wakeDispatcher() {
	select {
	case b.signal <- struct{}{}:
	default: // it is told already
	}
}

// End ends all watchers, each at a moment of its own within the next seconds, and lets none begin. Before their ends
// they are told what is left in the span, for drainTimeout at most. With lost, the published states may be wrong, and
// they are told nothing more.
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
}

// endSoon plans the end of a watcher within maxEndSpread, unless it is planned already.
func (b *Broadcaster) endSoon(w *Watcher, why Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.ending != EndLost {
		b.endLocked([]*Watcher{w}, maxEndSpread, why)
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
		w.setTimer(w.nextWake())
	}
}

// add adds a watcher. It returns false if the broadcaster has ended. defined is the watcher's [Options].Defined.
func (b *Broadcaster) add(w *Watcher, defined func() bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	w.position = len(b.buckets[w.bucket])
	b.buckets[w.bucket] = append(b.buckets[w.bucket], w)
	b.watchers++
	w.wakeAt = w.nextWake()
	w.timer = time.AfterFunc(time.Until(w.wakeAt), func() { b.handleTimer(w) })
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
	bucket[w.position] = bucket[last]
	bucket[w.position].position = w.position
	bucket[last] = nil
	if last == 0 {
		delete(b.buckets, w.bucket)
	} else {
		b.buckets[w.bucket] = bucket[:last]
	}
	b.watchers--
	w.timer.Stop()
	w.timer = nil
	if b.watchers == 0 {
		b.wakeDispatcher() // run ends
	}
	b.counts.open.Add(-1)
}

// handleTimer wakes a watcher for its end or for a bookmark.
func (b *Broadcaster) handleTimer(w *Watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch {
	case w.timer == nil || now.Before(w.wakeAt): // it was removed, or its timer was set anew meanwhile
		return
	case now.Before(w.deadline):
		w.bookmarkDue.Store(true)
		w.bookmarkAt = nextBookmark(now, w.deadline)
		w.setTimer(w.nextWake())
	default:
		w.pastDrain.Store(w.pastDeadline.Load())
		w.pastDeadline.Store(true)
		w.setTimer(now.Add(drainTimeout))
	}
	w.wakeUp()
	b.wakeDispatcher() // a bookmark may wait for what is not confirmed yet
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

// waitingLocked returns the watchers whose clients have still to be told something.
func (b *Broadcaster) waitingLocked() (waiting []*Watcher) {
	for _, bucket := range b.buckets {
		for _, w := range bucket {
			if w.isWaiting() {
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

// turn does what is to be done now: it confirms what may be confirmed, and wakes the watchers that have something to
// do. It sets the timer if it must ask soon again. It returns false if there are no watchers any more.
func (b *Broadcaster) turn(timer *time.Timer) bool {
	published := b.published.Load() // before the question: what is published later needs a later answer
	confirms := b.askToConfirm(time.Now())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watchers == 0 {
		b.running = false
		b.confirmed.Store(&Span{From: published.To, To: published.To}) // the history is not held for watchers to come
		return false
	}
	now := time.Now()
	next := time.Hour
	confirmed := b.confirmed.Load() // End replaces it without the lock, but sets lost before
	// A watcher may have looked at a change that was dispatched and not confirmed. Nothing else wakes it.
	hadUnconfirmed := confirmed.To < b.dispatched.Load()
	if confirms && published.To >= confirmed.To && !b.lost.Load() { // else a newer span was confirmed meanwhile
		b.confirmed.Store(published)
	}
	b.dispatchLocked(published)
	if b.handleUnconfirmedLocked(confirms, hadUnconfirmed, now) {
		next = definedPollInterval
	}
	timer.Reset(next)
	return true
}

// askToConfirm reports whether what is published may be confirmed. It asks [Options].Defined, but after a no only
// once per definedPollInterval.
func (b *Broadcaster) askToConfirm(now time.Time) bool {
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

// handleUnconfirmedLocked handles the watchers that wait for a change to be confirmed. It wakes them if all was
// confirmed now (confirms), and ends them if they have waited for too long. It reports whether any still wait.
// hadUnconfirmed says that a change was dispatched before it was confirmed.
func (b *Broadcaster) handleUnconfirmedLocked(confirms, hadUnconfirmed bool, now time.Time) bool {
	if confirms && !hadUnconfirmed && b.waitingSince.IsZero() {
		return false
	}
	waiting := b.waitingLocked()
	switch {
	case confirms, len(waiting) == 0:
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

// dispatchLocked dispatches the changes that came since the last time: it wakes the watchers that must tell them.
func (b *Broadcaster) dispatchLocked(span *Span) {
	versions := &span.Versions
	dispatched := b.dispatched.Load()
	b.dispatching.Store(max(dispatched, span.To))
	if dispatched < span.RetainedAfter() {
		// The history was cut before all of it was dispatched, so any watcher may miss something.
		for _, bucket := range b.buckets {
			for _, w := range bucket {
				w.changed(dispatched + 1)
			}
		}
	}
	for i := versions.FirstAfter(dispatched); i < versions.Len(); i++ {
		v := versions.At(i)
		for _, bucket := range v.Change.Buckets() {
			for _, w := range b.buckets[bucket] {
				if _, o := w.filter.Event(v.Change); o != nil {
					w.changed(v.Revision)
				}
			}
		}
	}
	b.dispatched.Store(max(dispatched, span.To))
}
