package inflight

import (
	"container/list"
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/google/btree"
)

// LimiterConfig bounds a [Limiter]. Units are whatever costs are given in:
// requests, or bytes.
type LimiterConfig struct {
	// Capacity is how many units can be held at a time. 0: any number.
	Capacity int64
	// PerCaller is how many units one caller can hold, 0 any number. A single request that costs more
	// is counted as costing this much, so it is granted, and one caller's slow readers cannot hold
	// all capacity.
	PerCaller int64
	// MaxWaiting bounds how many requests wait, of all callers together.
	MaxWaiting int
	// MaxWaitingPerCaller bounds how many requests of one caller wait. It should
	// be well below MaxWaiting, so that one caller cannot fill the queue.
	MaxWaitingPerCaller int
	// MaxWait is how long a request waits before it is refused. 0: nobody waits.
	MaxWait time.Duration
}

// Overload is an error that says why a [Limiter] refuses a request, which is answered with 429.
type Overload string

// Error implements error.
func (o Overload) Error() string { return "too many requests: " + string(o) }

// The reasons to refuse.
const (
	// OverloadQueueFull: as many requests wait as may wait.
	OverloadQueueFull Overload = "queue-full"
	// OverloadCallerQueueFull: as many requests of this caller wait as may wait.
	OverloadCallerQueueFull Overload = "caller-queue-full"
	// OverloadTimeOut: the request has waited as long as it may.
	OverloadTimeOut Overload = "time-out"
)

// Overloads returns every [Overload].
func Overloads() []Overload {
	return []Overload{OverloadQueueFull, OverloadCallerQueueFull, OverloadTimeOut}
}

// LimiterStats is the state of a [Limiter] at one moment.
type LimiterStats struct {
	// InUse is how many units are held.
	InUse int64
	// Waiting is the number of requests that wait.
	Waiting int
	// Callers is the number of callers that hold something or wait.
	Callers int
	// Refused counts the requests refused since the beginning, by reason. Those
	// whose context ended are not among them.
	Refused map[Overload]uint64
}

// Limiter bounds what is in flight, and shares it fairly between callers. K identifies a caller.
//
// Free units are granted at once; if nobody else asks, one caller can get all that it may hold
// (PerCaller). If there are too few, requests wait. Units that become free go to the waiting caller
// that holds the fewest (max-min fairness); between callers that hold the same, to the one whose
// oldest request came first. A caller's own requests are granted in the order in which they came.
// So a caller that holds much gets no more while one that holds less is waiting, however many
// requests it sends.
//
// A request that is next but does not fit blocks those that come after it; otherwise small requests
// could keep a large one waiting for ever. But it does not block them at once; otherwise one large
// request would leave capacity unused until slow readers of other answers are done. Smaller
// requests may overtake it until their costs add up to its own cost. Nobody
// starves: a caller that waits gets nothing else, so it holds less and less as its other requests
// end. When it holds nothing, only requests that came earlier go before it, and the requests that
// may overtake it are bounded.
//
// A caller that holds as much as one caller may (PerCaller) waits until it gives back some of it, and
// blocks nobody meanwhile.
//
// A request that costs more than one caller may hold, or more than the whole capacity, is counted
// with just that limit. So it is granted when its caller holds nothing else, and does not wait for ever.
//
// A Limiter is safe for concurrent use. A caller that neither holds nor waits
// for anything costs no memory.
type Limiter[K comparable] struct {
	config LimiterConfig

	mu      sync.Mutex
	inUse   int64
	waiting int
	arrived uint64 // counts requests that had to queue
	refused map[Overload]uint64
	callers map[K]*share[K]
	// inNeed has the callers that wait, in the order in which their requests are granted. Its keys are
	// made of a share's held and its oldest request: a share is taken out before one of these changes.
	inNeed *btree.BTreeG[*share[K]]
	// overtaken is used by nextLocked only, and kept for its memory.
	overtaken []*claim[K]
	// spare are shares for callers to come, so that the uncontended case
	// allocates nothing.
	spare []*share[K]
}

// share is what one caller holds and waits for.
type share[K comparable] struct {
	caller K
	held   int64
	queue  list.List // of *claim[K], oldest first
}

// oldest returns the first of the caller's requests that wait. There must be one.
func (s *share[K]) oldest() *claim[K] {
	c, _ := s.queue.Front().Value.(*claim[K])
	return c
}

// claim is a request that waits.
type claim[K comparable] struct {
	share   *share[K]
	queued  *list.Element // in share.queue; nil once it has left
	cost    int64
	arrival uint64
	passed  int64         // what was granted to others while this one was before them
	granted chan struct{} // closed when it is
}

func (c *claim[K]) isGranted() bool {
	select {
	case <-c.granted:
		return true
	default:
		return false
	}
}

const (
	// inNeedDegree is that of a small tree whose items come and go.
	inNeedDegree = 8
	// maxSpare bounds the memory kept for callers to come.
	maxSpare = 64
)

// NewLimiter returns a Limiter in which nothing is held. A negative bound is an
// error.
func NewLimiter[K comparable](config LimiterConfig) (*Limiter[K], error) {
	if config.Capacity < 0 || config.PerCaller < 0 || config.MaxWaiting < 0 || config.MaxWaitingPerCaller < 0 || config.MaxWait < 0 {
		return nil, fmt.Errorf("a limiter's bounds must not be negative: %+v", config)
	}
	if config.Capacity == 0 {
		config.Capacity = math.MaxInt64
	}
	if config.PerCaller == 0 {
		config.PerCaller = math.MaxInt64
	}
	return &Limiter[K]{
		config:  config,
		refused: map[Overload]uint64{},
		callers: map[K]*share[K]{},
		inNeed:  btree.NewG(inNeedDegree, needsMore[K]),
	}, nil
}

// needsMore orders callers that wait.
func needsMore[K comparable](a, b *share[K]) bool {
	if a.held != b.held {
		return a.held < b.held
	}
	return a.oldest().arrival < b.oldest().arrival
}

// Grant is what [Limiter.Acquire] gives. It is given back with Release; the zero
// Grant holds nothing. A Grant must not be copied once Release may be called,
// nor be used by several goroutines at once.
type Grant[K comparable] struct {
	limiter *Limiter[K]
	share   *share[K]
	cost    int64
}

// Release gives back what was granted. Only the first call does anything.
func (g *Grant[K]) Release() {
	if g.limiter == nil {
		return
	}
	g.limiter.release(g.share, g.cost)
	*g = Grant[K]{}
}

// Acquire takes cost units (one at least) for the caller, and waits for them if
// it must. The error is an [Overload], or ctx's own if ctx ended first; then
// nothing is held.
func (l *Limiter[K]) Acquire(ctx context.Context, caller K, cost int64) (Grant[K], error) {
	return l.acquireIf(ctx, caller, cost, l.config.MaxWait, nil)
}

// acquireIf is like Acquire, but waits at most for wait. mayWait is called when the request is in the
// queue: if it returns a reason, the request is refused at once. A nil mayWait never refuses.
func (l *Limiter[K]) acquireIf(
	ctx context.Context, caller K, cost int64, wait time.Duration, mayWait func() Overload,
) (Grant[K], error) {
	if err := ctx.Err(); err != nil {
		return Grant[K]{}, err
	}
	cost = l.bounded(cost)

	l.mu.Lock()
	s := l.shareLocked(caller)
	if l.waiting == 0 && l.takeLocked(s, cost) {
		l.mu.Unlock()
		return Grant[K]{l, s, cost}, nil
	}
	c, why := l.queueLocked(s, cost, wait)
	l.mu.Unlock()
	if why != "" {
		return Grant[K]{}, why
	}
	if mayWait != nil && !c.isGranted() {
		if why := mayWait(); why != "" && l.abandon(c, why) {
			return Grant[K]{}, why
		}
	}
	return l.wait(ctx, c, wait)
}

// tryAcquire takes cost units (one at least) for the caller if it need not wait for them.
func (l *Limiter[K]) tryAcquire(caller K, cost int64) (Grant[K], bool) {
	cost = l.bounded(cost)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shareLocked(caller)
	if l.waiting == 0 {
		if l.takeLocked(s, cost) {
			return Grant[K]{l, s, cost}, true
		}
	} else if c := l.enqueueLocked(s, cost); c.isGranted() { // those who wait do so for their own
		return Grant[K]{l, s, cost}, true
	} else {
		l.unqueueLocked(c)
	}
	l.forgetLocked(s)
	return Grant[K]{}, false
}

// exceed gives a caller cost units at once, even beyond the capacity. The one who calls it must just
// have made another request end that holds as many units.
func (l *Limiter[K]) exceed(caller K, cost int64) Grant[K] {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shareLocked(caller)
	l.holdLocked(s, cost)
	return Grant[K]{l, s, cost}
}

// holdLocked changes how much the caller holds.
func (l *Limiter[K]) holdLocked(s *share[K], by int64) {
	l.inUse += by
	if s.queue.Len() == 0 {
		s.held += by
		return
	}
	l.inNeed.Delete(s)
	s.held += by
	l.inNeed.ReplaceOrInsert(s)
}

// takeLocked gives the caller cost units where nobody waits, if there are so many for it.
func (l *Limiter[K]) takeLocked(s *share[K], cost int64) bool {
	if cost > l.config.Capacity-l.inUse || !l.mayHold(s, cost) {
		return false
	}
	l.inUse += cost
	s.held += cost
	return true
}

// bounded returns what a request of this cost is counted as.
func (l *Limiter[K]) bounded(cost int64) int64 {
	return min(max(cost, 1), l.config.Capacity, l.config.PerCaller)
}

// mayHoldMore says whether a caller may hold cost more units, as far as its own bound goes.
func (l *Limiter[K]) mayHoldMore(caller K, cost int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.callers[caller]
	return s == nil || l.mayHold(s, l.bounded(cost))
}

// mayHold says whether a caller may hold cost more units.
func (l *Limiter[K]) mayHold(s *share[K], cost int64) bool {
	return cost <= l.config.PerCaller-s.held
}

// Stats returns the state of now.
func (l *Limiter[K]) Stats() LimiterStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return LimiterStats{InUse: l.inUse, Waiting: l.waiting, Callers: len(l.callers), Refused: maps.Clone(l.refused)}
}

// wait returns when c is granted, or when it has left the queue, after atMost.
func (l *Limiter[K]) wait(ctx context.Context, c *claim[K], atMost time.Duration) (Grant[K], error) {
	if c.isGranted() { // already, as often as not
		return Grant[K]{l, c.share, c.cost}, nil
	}
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-c.granted:
		return Grant[K]{l, c.share, c.cost}, nil
	case <-timer.C:
		if l.abandon(c, OverloadTimeOut) {
			return Grant[K]{}, OverloadTimeOut
		}
		return Grant[K]{l, c.share, c.cost}, nil // just in time
	case <-ctx.Done():
		if !l.abandon(c, "") {
			l.release(c.share, c.cost) // there is nobody left to use it
		}
		return Grant[K]{}, ctx.Err()
	}
}

// queueLocked puts a request into its caller's queue and grants what can be
// granted, which may be this very request. If it is not, and waits beyond a
// bound, or must not wait at all, it is taken out again and the reason returned.
func (l *Limiter[K]) queueLocked(s *share[K], cost int64, wait time.Duration) (*claim[K], Overload) {
	if s.queue.Len() >= l.config.MaxWaitingPerCaller && s.queue.Len() > 0 {
		// It could not be granted before those that came first.
		l.refused[OverloadCallerQueueFull]++
		return nil, OverloadCallerQueueFull
	}
	c := l.enqueueLocked(s, cost)
	var why Overload
	switch {
	case c.isGranted():
		return c, ""
	case s.queue.Len() > l.config.MaxWaitingPerCaller:
		why = OverloadCallerQueueFull
	case l.waiting > l.config.MaxWaiting:
		why = OverloadQueueFull
	case wait == 0:
		why = OverloadTimeOut
	default:
		return c, ""
	}
	l.refused[why]++
	l.unqueueLocked(c)
	l.forgetLocked(s)
	return nil, why
}

// enqueueLocked puts a request into its caller's queue and grants what can be granted, which may be
// this very request.
func (l *Limiter[K]) enqueueLocked(s *share[K], cost int64) *claim[K] {
	l.arrived++
	c := &claim[K]{share: s, cost: cost, arrival: l.arrived, granted: make(chan struct{})}
	c.queued = s.queue.PushBack(c)
	l.waiting++
	if s.queue.Len() == 1 {
		l.inNeed.ReplaceOrInsert(s)
	}
	l.grantLocked()
	return c
}

// abandon takes a request out of its queue, unless it has been granted in the
// meantime. A reason that is not empty is counted.
func (l *Limiter[K]) abandon(c *claim[K], why Overload) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.queued == nil {
		return false
	}
	if why != "" {
		l.refused[why]++
	}
	l.unqueueLocked(c)
	l.forgetLocked(c.share)
	l.grantLocked() // it may have held up others
	return true
}

// release takes back what was granted.
func (l *Limiter[K]) release(s *share[K], cost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holdLocked(s, -cost)
	l.forgetLocked(s)
	l.grantLocked()
}

// grantLocked grants all that can be granted.
func (l *Limiter[K]) grantLocked() {
	for {
		s := l.nextLocked()
		if s == nil {
			clear(l.overtaken) // they may be gone soon
			return
		}
		c := s.oldest()
		for _, o := range l.overtaken {
			o.passed += c.cost
		}
		l.inUse += c.cost
		l.unqueueWithLocked(c, c.cost)
		close(c.granted)
	}
}

// nextLocked returns the caller whose oldest request is granted next, or nil. It leaves in
// overtaken the requests that this one overtakes.
func (l *Limiter[K]) nextLocked() (next *share[K]) {
	l.overtaken = l.overtaken[:0]
	// The cost that may be granted: at most what is free, and what every request before lets pass.
	allowed := l.config.Capacity - l.inUse
	if allowed <= 0 {
		return nil
	}
	l.inNeed.Ascend(func(s *share[K]) bool {
		c := s.oldest()
		if !l.mayHold(s, c.cost) {
			return true // it waits for its own, and holds up nobody
		}
		if c.cost <= allowed {
			next = s
			return false
		}
		l.overtaken = append(l.overtaken, c)
		allowed = min(allowed, c.cost-c.passed)
		return allowed > 0
	})
	return next
}

// unqueueLocked takes a request that is not granted out of its queue.
func (l *Limiter[K]) unqueueLocked(c *claim[K]) { l.unqueueWithLocked(c, 0) }

// unqueueWithLocked takes a request out of its queue and adds to what its caller
// holds.
func (l *Limiter[K]) unqueueWithLocked(c *claim[K], granted int64) {
	s := c.share
	l.inNeed.Delete(s)
	s.queue.Remove(c.queued)
	c.queued = nil
	s.held += granted
	l.waiting--
	if s.queue.Len() > 0 {
		l.inNeed.ReplaceOrInsert(s)
	}
}

// shareLocked returns the caller's share. It is kept while the caller holds
// something or waits.
func (l *Limiter[K]) shareLocked(caller K) *share[K] {
	s := l.callers[caller]
	if s != nil {
		return s
	}
	if n := len(l.spare); n > 0 {
		s = l.spare[n-1]
		l.spare = l.spare[:n-1]
		s.caller = caller
	} else {
		s = &share[K]{caller: caller}
	}
	l.callers[caller] = s
	return s
}

// forgetLocked removes a share that is empty.
func (l *Limiter[K]) forgetLocked(s *share[K]) {
	if s.held > 0 || s.queue.Len() > 0 {
		return
	}
	delete(l.callers, s.caller)
	if len(l.spare) < maxSpare {
		*s = share[K]{}
		l.spare = append(l.spare, s)
	}
}
