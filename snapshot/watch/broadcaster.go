package watch

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
)

// Broadcaster has the history of one collection, and wakes the watchers of that history when a change concerns them.
// All methods are safe for concurrent use, but Publish and Renew must not overlap.
//
// The feed publishes a change. Then the broadcaster dispatches it: each watcher that must deliver the change gets a
// record that it is due, and is woken. A watcher delivers it once [Options].Defined has confirmed that the resource is
// still defined as before.
type Broadcaster struct {
	form      atomic.Pointer[Form]
	published atomic.Pointer[Span] // the newest span
	// dispatched is the revision up to which changes were dispatched.
	dispatched atomic.Uint64
	// confirmed is the revision up to which changes may be delivered: Defined was true after they had been published.
	confirmed atomic.Uint64
	// aborted reports whether the published states may be wrong, so that nothing more may be delivered.
	aborted atomic.Bool
	// newestEncoded is the newest event, if it is small and a watcher has delivered it.
	newestEncoded atomic.Pointer[encodedEvent]

	counts *Counts
	pacer  *Pacer
	signal chan struct{} // wakes run

	mu       sync.Mutex
	running  bool // the goroutine of run exists: as long as there are watchers
	ended    bool // no watcher may begin
	watchers int
	buckets  map[index.Bucket][]*Watcher
}

// NewBroadcaster returns the broadcaster of a span. It counts its watchers and their ends in counts, and spreads their
// ends together with those of all broadcasters that have the same pacer.
func NewBroadcaster(form Form, span Span, counts *Counts, pacer *Pacer) *Broadcaster {
	b := &Broadcaster{counts: counts, pacer: pacer, signal: make(chan struct{}, 1), buckets: map[index.Bucket][]*Watcher{}}
	b.form.Store(&form)
	b.published.Store(&span)
	return b
}

// Publish replaces the span by a longer one, or by one from which the oldest changes were forgotten.
func (b *Broadcaster) Publish(span Span) {
	// If memory is tight, history may be trimmed after each change. So what would be forgotten is dispatched first:
	// only the watchers that it concerns end.
	if b.dispatched.Load() < span.RetainedAfter() {
		b.mu.Lock()
		b.dispatchLocked()
		b.mu.Unlock()
	}
	b.published.Store(&span)
	b.wakeDispatcher()
}

// Renew replaces the span by one that begins at its end or later, and sets the form in which events are written from
// now on. A watcher that has still to deliver something of the old span ends as [EndBehind]; all others go on.
func (b *Broadcaster) Renew(form Form, span Span) {
	b.updateForm(func(f *Form) {
		learned := f.PlainBookmark
		*f = form
		if f.PlainBookmark == nil { // a load learns none: the old one is written until the stream sends another
			f.PlainBookmark = learned
		}
	})
	b.mu.Lock()
	b.dispatchLocked()
	b.published.Store(&span)
	b.dispatched.Store(span.To)
	b.mu.Unlock()
}

// wakeDispatcher lets run dispatch what is published.
func (b *Broadcaster) wakeDispatcher() {
	select {
	case b.signal <- struct{}{}:
	default: // run was woken already
	}
}

// confirm reports whether changes up to a published revision may be delivered: whether the resource is still defined as
// before. defined is the Defined of any watcher. It is called unless it has been true since the revision was published.
func (b *Broadcaster) confirm(revision uint64, defined func() bool) bool {
	if revision <= b.confirmed.Load() {
		return true
	}
	if !defined() {
		return false
	}
	b.confirmed.Store(revision) // if that lowers it, another watcher only asks once more
	return true
}

// End is EndWithin for a state that was lost.
func (b *Broadcaster) End() { b.EndWithin(maxEndSpread, EndLost) }

// Abort is End for published states that may be wrong: watchers deliver nothing more.
func (b *Broadcaster) Abort() {
	b.aborted.Store(true)
	b.End()
	to := b.published.Load().To
	b.published.Store(&Span{From: to, To: to}) // this frees the old span's memory before the last watcher ends
}

// EndWithin plans the ends of all watchers, each at a moment of its own within a time. No watcher can begin any more. Until
// that moment, a watcher delivers what is left in the span, and changes that are published meanwhile; after it, what is left
// then, for drainTimeout at most.
func (b *Broadcaster) EndWithin(within time.Duration, why Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended && why == EndLost {
		return // their ends are planned already; a shutdown plans them again, for an earlier time
	}
	b.ended = true
	all := make([]*Watcher, 0, b.watchers)
	for _, bucket := range b.buckets {
		all = append(all, bucket...)
	}
	b.planEndsLocked(all, within, why)
}

// planEnd plans the end of a watcher within maxEndSpread, unless End has planned the ends of all.
func (b *Broadcaster) planEnd(w *Watcher, why Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.plannedEnding != EndLost {
		b.planEndsLocked([]*Watcher{w}, maxEndSpread, why)
	}
}

// planEndsLocked plans the ends of watchers within a time, each at a moment of its own. An end that was planned for an
// earlier time stays.
func (b *Broadcaster) planEndsLocked(watchers []*Watcher, within time.Duration, why Ending) {
	now := time.Now()
	delay, spread := b.pacer.Plan(now, len(watchers), within)
	for _, w := range watchers {
		if w.phase.Load() != phaseOpen { // it is ending already, and delivers what is left
			continue
		}
		at := now.Add(delay)
		if within >= minWatchLife { // at a shutdown there may be less time
			at = later(at, w.startedAt.Add(minWatchLife))
		}
		at = at.Add(rand.N(spread)) // #nosec G404 -- no secret
		if at.Before(w.deadline) {
			w.deadline = at
			w.plannedEnding = why
		}
		w.setTimerLocked(w.nextWakeLocked())
	}
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// add adds a watcher. It returns false if the broadcaster has ended.
func (b *Broadcaster) add(w *Watcher) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	w.position = len(b.buckets[w.bucket])
	b.buckets[w.bucket] = append(b.buckets[w.bucket], w)
	b.watchers++
	w.wakeAt = w.nextWakeLocked()
	w.timer = time.AfterFunc(time.Until(w.wakeAt), func() { b.handleTimer(w) })
	if !b.running {
		b.running = true
		b.dispatched.Store(b.published.Load().To) // each watcher begins by itself with what is published already
		go b.run()
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

// handleTimer wakes a watcher for its next phase or for a bookmark.
func (b *Broadcaster) handleTimer(w *Watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch {
	case w.timer == nil || now.Before(w.wakeAt): // w was removed, or its timer was set anew meanwhile
		return
	case now.Before(w.deadline):
		w.bookmarkDue.Store(true)
		w.bookmarkAt = nextBookmark(now, w.deadline)
		w.setTimerLocked(w.nextWakeLocked())
	case w.phase.Load() == phaseOpen:
		w.phase.Store(phaseDraining)
		w.setTimerLocked(now.Add(drainTimeout))
	default:
		w.phase.Store(phaseDrained)
	}
	w.wakeUp()
}

// AwaitDelivered waits, for at most a time, until all watchers have delivered what is published.
func (b *Broadcaster) AwaitDelivered(ctx context.Context, atMost time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for clock.Sleep(ctx, deliveryPollInterval) {
		if b.allDelivered() {
			return
		}
	}
}

// allDelivered reports whether no watcher has anything left to deliver. A watcher whose Take runs may be taken for one
// that has delivered all.
func (b *Broadcaster) allDelivered() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, bucket := range b.buckets {
		if slices.ContainsFunc(bucket, (*Watcher).hasDue) {
			return false
		}
	}
	return b.dispatched.Load() >= b.published.Load().To
}

// Watchers returns the number of watchers.
func (b *Broadcaster) Watchers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.watchers
}

// run dispatches what is published until there are no watchers any more.
func (b *Broadcaster) run() {
	for range b.signal {
		b.mu.Lock()
		if b.watchers == 0 {
			b.running = false
			b.mu.Unlock()
			return
		}
		b.dispatchLocked()
		b.mu.Unlock()
	}
}

// dispatchLocked dispatches the changes that were published since the last time: it wakes the watchers that must
// deliver them.
func (b *Broadcaster) dispatchLocked() {
	span := b.published.Load()
	versions := &span.Versions
	dispatched := b.dispatched.Load()
	if dispatched < span.RetainedAfter() {
		// The history was trimmed before all of it was dispatched, so any watcher may miss something.
		for _, bucket := range b.buckets {
			for _, w := range bucket {
				w.setDue(dispatched + 1)
			}
		}
	}
	for i := versions.FirstAfter(dispatched); i < versions.Len(); i++ {
		v := versions.At(i)
		for _, bucket := range v.Change.Buckets() {
			for _, w := range b.buckets[bucket] {
				if _, o := w.filter.Event(v.Change); o != nil {
					w.setDue(v.Revision)
				}
			}
		}
	}
	b.dispatched.Store(max(dispatched, span.To))
}
