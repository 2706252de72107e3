package watch

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
)

// Broadcaster has the history of one collection, and wakes the watchers of that history when a change concerns them.
// It is safe for concurrent use, but calls of Publish and Renew must not overlap.
//
// A change goes three steps. The feed publishes it. The broadcaster dispatches it: it makes the change due at each watcher
// whose filter selects it, and wakes the watcher. The watcher delivers it once [Options].IsDefined has confirmed that the resource
// is still defined as before.
type Broadcaster struct {
	form      atomic.Pointer[Form]
	published atomic.Pointer[Span] // the newest span
	// dispatched is the revision up to which changes were dispatched.
	dispatched atomic.Uint64
	// confirmed is the revision up to which changes may be delivered: IsDefined has returned true since they were published.
	confirmed atomic.Uint64
	// aborted reports whether the published states may be wrong, so that nothing more may be delivered.
	aborted atomic.Bool
	// newestEncoded is the newest small event that a watcher has encoded; nil before the first.
	newestEncoded atomic.Pointer[encodedEvent]

	counts *Counts
	pacer  *Pacer
	signal chan struct{} // A value wakes run.

	mu       sync.Mutex
	running  bool // The goroutine of run exists.
	ended    bool // No watcher may begin any more.
	watchers int  // The number of watchers in all buckets.
	buckets  map[index.Bucket][]*Watcher
}

// NewBroadcaster returns the broadcaster of a span. It counts its watchers and their ends in counts. Broadcasters with the
// same pacer spread the ends of their watchers together.
func NewBroadcaster(form Form, span Span, counts *Counts, pacer *Pacer) *Broadcaster {
	b := &Broadcaster{counts: counts, pacer: pacer, signal: make(chan struct{}, 1), buckets: map[index.Bucket][]*Watcher{}}
	b.form.Store(&form)
	b.published.Store(&span)
	return b
}

// Publish replaces the span by a longer one, or by one from which the oldest changes were forgotten.
func (b *Broadcaster) Publish(span Span) {
	// If memory is tight, the new span may have forgotten changes that are not dispatched yet. They are dispatched from the old
	// span first. Otherwise every watcher that has not delivered these revisions would end, even one whose filter selects none of
	// the changes.
	if b.dispatched.Load() < span.RetainedAfter() {
		b.mu.Lock()
		b.dispatchLocked()
		b.mu.Unlock()
	}
	b.published.Store(&span)
	b.wakeDispatcher()
}

// Renew replaces the form of events, and the span by one that begins at the end of the old span or later. A watcher that has
// not delivered all of the old span ends as [EndBehind]. The others go on.
func (b *Broadcaster) Renew(form Form, span Span) {
	b.updateForm(func(f *Form) {
		form.PlainBookmark = cmp.Or(form.PlainBookmark, f.PlainBookmark) // A load does not learn it, so the known one stays.
		*f = form
	})
	b.mu.Lock()
	b.dispatchLocked()
	b.published.Store(&span)
	b.dispatched.Store(span.To)
	b.mu.Unlock()
}

// wakeDispatcher wakes run.
func (b *Broadcaster) wakeDispatcher() {
	select {
	case b.signal <- struct{}{}:
	default: // There is a value already that will wake run.
	}
}

// run dispatches the published changes whenever it is woken. If there are no watchers then, it ends.
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

// dispatchLocked dispatches the changes that were published since the last time.
func (b *Broadcaster) dispatchLocked() {
	span := b.published.Load()
	versions := &span.Versions
	dispatched := b.dispatched.Load()
	if dispatched < span.RetainedAfter() {
		// The history has forgotten changes that were not dispatched, so it is not known which watchers they concern. So the
		// first of them becomes due at every watcher: Take then returns EndBehind, unless it has delivered these changes already.
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

// confirmDefined reports whether changes up to a published revision may be delivered. It calls isDefined, the [Options].IsDefined
// of any watcher, unless such a call has returned true since the revision was published.
func (b *Broadcaster) confirmDefined(revision uint64, isDefined func() bool) bool {
	if revision <= b.confirmed.Load() {
		return true
	}
	if !isDefined() {
		return false
	}
	b.confirmed.Store(revision) // This may replace a higher one of another watcher. Then isDefined is called once more.
	return true
}

// add adds a watcher, starts its timer and returns it. It returns nil if the broadcaster has ended.
func (b *Broadcaster) add(w *Watcher) *Watcher {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return nil
	}
	w.position = len(b.buckets[w.bucket])
	b.buckets[w.bucket] = append(b.buckets[w.bucket], w)
	b.watchers++
	w.wakeAt = w.nextWakeLocked()
	w.timer = time.AfterFunc(time.Until(w.wakeAt), func() { b.handleTimer(w) })
	if !b.running {
		b.running = true
		b.dispatched.Store(b.published.Load().To) // A new watcher begins by reading the span itself.
		go b.run()
	}
	b.counts.open.Add(1)
	return w
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
		b.wakeDispatcher() // Without watchers, run ends.
	}
	b.counts.open.Add(-1)
}

// handleTimer is called when the timer of w fires. It makes a bookmark due or begins the next phase, and wakes w.
func (b *Broadcaster) handleTimer(w *Watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch {
	case w.timer == nil || now.Before(w.wakeAt): // Meanwhile w was removed, or its timer was set for a later time.
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

// deliveryPollInterval is the time from one check of AwaitDelivered to the next.
const deliveryPollInterval = 10 * time.Millisecond

// AwaitDelivered blocks until all watchers have delivered all published changes, but no longer than atMost, or until ctx
// ends.
func (b *Broadcaster) AwaitDelivered(ctx context.Context, atMost time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for clock.Sleep(ctx, deliveryPollInterval) {
		if b.allDelivered() {
			return
		}
	}
}

// allDelivered reports whether no watcher has anything left to deliver. It may be wrong about a watcher whose Take is
// running.
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
