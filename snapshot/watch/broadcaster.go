package watch

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/snapshot/index"
)

// Broadcaster has the history of one collection (a [Span]), and wakes the watchers of that history when a change concerns them.
// It keeps its watchers in buckets, for example one for all watches of the namespace ns (see [index.Bucket]). So a change is
// compared only with the filters of the watchers that it may concern.
//
// A Broadcaster is safe for concurrent use, but calls of Publish and Renew must not overlap.
//
// A change takes three steps:
//
//	published   The feed has called Publish with a span that has the change.
//	dispatched  The change is due at each watcher whose filter selects it, and Publish has woken these watchers.
//	delivered   A watcher's client has it. The watcher waits until [Options].IsDefined confirms that the resource is still defined
//	            as before.
type Broadcaster struct {
	form      atomic.Pointer[Form] // how events are written
	published atomic.Pointer[Span] // the newest span
	// dispatched is the revision up to which changes were dispatched.
	dispatched atomic.Uint64
	// aborted reports whether the published states may be wrong, so that nothing more may be delivered.
	aborted atomic.Bool

	counts *Counts
	pacer  *Pacer

	mu       sync.Mutex
	closed   bool // No watcher may begin any more.
	watchers int  // The number of watchers in all buckets.
	buckets  map[index.Bucket][]*Watcher
}

// NewBroadcaster returns a broadcaster that begins with a span. It counts its watchers and their ends in counts. Broadcasters
// with the same pacer spread the ends of their watchers together.
func NewBroadcaster(form Form, span Span, counts *Counts, pacer *Pacer) *Broadcaster {
	b := &Broadcaster{counts: counts, pacer: pacer, buckets: map[index.Bucket][]*Watcher{}}
	b.form.Store(&form)
	b.published.Store(&span)
	b.dispatched.Store(span.To)
	return b
}

// Publish replaces the span by a later one, which may also have forgotten old changes, and dispatches the changes that are new
// in it.
func (b *Broadcaster) Publish(span Span) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.published.Store(&span)
	if b.watchers > 0 { // Most collections have none.
		b.dispatchLocked(&span.Versions)
	}
	b.dispatched.Store(span.To)
}

// dispatchLocked dispatches the changes after b.dispatched: it makes each change due at the watchers whose filters select it,
// and wakes these watchers.
func (b *Broadcaster) dispatchLocked(versions *index.History) {
	for i := versions.FirstAfter(b.dispatched.Load()); i < versions.Len(); i++ {
		v := versions.At(i)
		for _, bucket := range v.Change.Buckets() {
			for _, w := range b.buckets[bucket] {
				// The event's type is ignored here: Take finds it out again when it writes the event.
				if _, o := w.filter.Event(v.Change); o != nil {
					w.setDue(v.Revision)
				}
			}
		}
	}
}

// Renew replaces the form of events and the span, when another state has been loaded. The new span must begin at the end of the
// old one or later. A watcher that has not delivered all of the old span ends with [EndBehind]. The others go on.
func (b *Broadcaster) Renew(form Form, span Span) {
	b.updateForm(func(current *Form) {
		form.PlainBookmark = cmp.Or(form.PlainBookmark, current.PlainBookmark) // A load learns none, so the known one stays.
		*current = form
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.published.Store(&span)
	b.dispatched.Store(span.To)
}

// add adds a watcher, starts its timer and returns it. It returns nil if the broadcaster is closed.
func (b *Broadcaster) add(w *Watcher) *Watcher {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	w.position = len(b.buckets[w.bucket])
	b.buckets[w.bucket] = append(b.buckets[w.bucket], w)
	b.watchers++
	w.wakeAt = w.nextWakeLocked()
	w.timer = time.AfterFunc(time.Until(w.wakeAt), func() { b.handleTimer(w) })
	b.counts.open.Add(1)
	return w
}

// remove removes a watcher.
func (b *Broadcaster) remove(w *Watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bucket := b.buckets[w.bucket]
	last := len(bucket) - 1
	moved := bucket[last] // The last watcher takes the place of w.
	bucket[w.position] = moved
	moved.position = w.position
	bucket[last] = nil
	if last == 0 {
		delete(b.buckets, w.bucket)
	} else {
		b.buckets[w.bucket] = bucket[:last]
	}
	b.watchers--
	w.timer.Stop()
	w.timer = nil
	b.counts.open.Add(-1)
}

// handleTimer is called when the timer of w fires. It makes a bookmark due, or begins the next phase of w (see the phases in
// ending.go), and wakes w.
func (b *Broadcaster) handleTimer(w *Watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch {
	case w.timer == nil || now.Before(w.wakeAt): // Since the timer fired, w was removed, or its timer was set for a later time.
		return
	case now.Before(w.deadline): // A timer before the deadline is for a bookmark.
		w.bookmarkDue.Store(true)
		w.bookmarkAt = nextBookmark(now, w.deadline)
		w.setTimerLocked(w.nextWakeLocked())
	case w.phase.Load() == phaseOpen: // The deadline has come.
		w.phase.Store(phaseDraining)
		w.setTimerLocked(now.Add(drainTimeout))
	default: // w has been draining for drainTimeout.
		w.phase.Store(phaseDrained)
	}
	w.wakeUp()
}

// Watchers returns the number of watchers.
func (b *Broadcaster) Watchers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.watchers
}
