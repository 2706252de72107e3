package limits

import (
	"container/list"
	"context"
	"math"
	"sync"
	"time"

	"github.com/google/btree"
)

// Limiter bounds what requests hold at a time, and shares it fairly between callers. It works like a semaphore with weights.
// These are its terms:
//
//	unit      what the capacity counts: a request, or a byte
//	flow      all requests of one caller ([Flow])
//	queued    a request in the queue of its flow, until units are granted to it
//	paused    a request that has given its units back for a while ([Grant.Pause])
//	waiting   a request that is queued or paused
//
// A flow can hold up to half of the capacity. Free units are granted at once. If too few are free, the request is queued. These
// rules say which queued request is granted next:
//
//   - Among flows with queued requests, the flow that holds the fewest units is next (max-min fairness). If two flows hold
//     equally many, the flow whose oldest request came first is next.
//   - Within a flow, requests are granted in the order in which they came.
//   - A cheaper request does not overtake the next one: units stay free until there are enough for the next one.
//   - A flow that cannot hold more units is passed over. Its requests wait until others of the same flow end.
//
// For example, flows A and B hold four units each and flow C holds two, of a capacity of ten. A and B have a queued request for
// one unit each, and that of A is older. The first unit that C releases goes to A, the second to B.
//
// A request that costs more than one flow can hold is charged only what one flow can hold.
//
// A Limiter is safe for concurrent use. A flow that neither holds nor waits for anything takes no memory.
type Limiter struct {
	config         LimiterConfig
	flowUnits      int64 // the number of units that one flow can hold
	flowMaxWaiting int   // the number of requests of one flow that may wait

	mu       sync.Mutex
	inUse    int64  // the number of units that are held
	waiting  int    // the number of waiting requests
	arrivals uint64 // the number of requests that were ever queued
	flows    map[Flow]*flow
	// queuedFlows has the flows with queued requests. The flow that is next comes first (isBefore).
	queuedFlows *btree.BTreeG[*flow]
}

// LimiterConfig configures a [Limiter].
type LimiterConfig struct {
	// Capacity is the number of units that can be held at a time, half of them (rounded up) by one flow; 0 means no bound.
	Capacity int64
	// MaxWaiting is the number of requests that may wait (be queued or paused) at a time. An eighth of them, but at least one,
	// may be of one flow.
	MaxWaiting int
	// MaxWait is the time after which a queued request is refused. If it is 0, a request that must wait is refused at once.
	MaxWait time.Duration
}

// flowsToFillQueue divides LimiterConfig.MaxWaiting: of 16,000 requests that may wait, 2,000 may be of one flow. So it takes at
// least eight flows to fill the queue.
const flowsToFillQueue = 8

// Overload is the reason for which a [Limiter] refuses a request, which is answered with 429.
type Overload string

// Error implements error.
func (o Overload) Error() string { return "too many requests: " + string(o) }

const (
	// OverloadQueueFull means that LimiterConfig.MaxWaiting requests wait already.
	OverloadQueueFull Overload = "queue-full"
	// OverloadCallerQueueFull means that as many requests of the same flow wait as one flow may have.
	OverloadCallerQueueFull Overload = "caller-queue-full"
	// OverloadTimeOut means that the request has waited for LimiterConfig.MaxWait, which may be 0.
	OverloadTimeOut Overload = "time-out"
)

// Stats is the state of a [Limiter] at one moment.
type Stats struct {
	// InUse is the number of units that are held.
	InUse int64
	// Waiting is the number of requests that are queued or paused.
	Waiting int
}

// queuedFlowsDegree is the degree of the B-tree queuedFlows. It is low, since the tree is mostly small and changes often.
const queuedFlowsDegree = 8

// NewLimiter returns a Limiter in which nothing is held. No bound may be negative.
func NewLimiter(config LimiterConfig) *Limiter {
	if config.Capacity == 0 {
		config.Capacity = math.MaxInt64
	}
	return &Limiter{
		config:         config,
		flowUnits:      config.Capacity/2 + config.Capacity%2,
		flowMaxWaiting: max(1, config.MaxWaiting/flowsToFillQueue),
		flows:          map[Flow]*flow{},
		queuedFlows:    btree.NewG(queuedFlowsDegree, isBefore),
	}
}

// Acquire acquires cost units (at least one) for a flow, and waits for them if necessary. An error is an [Overload] or the
// error of ctx.
func (l *Limiter) Acquire(ctx context.Context, key Flow, cost int64) (Grant, error) {
	l.mu.Lock()
	return l.acquireAndUnlock(ctx, key, l.boundedCost(cost))
}

// TryAcquire acquires cost units for a request that can do without them. It returns false if less than half of the capacity
// would stay free, or if [Limiter.Acquire] would wait.
func (l *Limiter) TryAcquire(key Flow, cost int64) (Grant, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cost > l.config.Capacity/2-l.inUse {
		return Grant{}, false
	}
	return l.tryAcquireLocked(key, l.boundedCost(cost))
}

// Stats returns the current state.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{InUse: l.inUse, Waiting: l.waiting}
}

// Grant holds the units that [Limiter.Acquire] has granted. The zero Grant holds none. A Grant must not be copied after its
// first use, and is not safe for concurrent use.
type Grant struct {
	limiter *Limiter
	flow    *flow
	cost    int64
	paused  bool
}

// Release gives the units back. A second call does nothing.
func (g *Grant) Release() {
	l := g.limiter
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.paused {
		l.changePausedLocked(g.flow, -1)
	} else {
		l.changeHeldLocked(g.flow, -g.cost)
		l.grantLocked()
	}
	*g = Grant{}
}

// Pause gives the units back while the request waits for something else. If no more requests may wait, the request keeps its
// units.
func (g *Grant) Pause() {
	l := g.limiter
	if l == nil || g.paused {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting < l.config.MaxWaiting && g.flow.waiting() < l.flowMaxWaiting {
		g.paused = true
		l.changePausedLocked(g.flow, 1)
		l.changeHeldLocked(g.flow, -g.cost)
		l.grantLocked()
	}
}

// Resume acquires the units again that Pause has given back. The request may be queued for them, like a new one, at the end of
// its flow's queue. The errors are those of [Limiter.Acquire]. After an error the Grant holds nothing.
func (g *Grant) Resume(ctx context.Context) error {
	if !g.paused {
		return nil
	}
	l := g.limiter
	l.mu.Lock()
	l.changePausedLocked(g.flow, -1)
	var err error
	*g, err = l.acquireAndUnlock(ctx, g.flow.key, g.cost) // by the key, since l may just have forgotten g.flow
	return err
}

// flow has the requests of one [Flow].
type flow struct {
	key    Flow
	held   int64     // the number of units that its requests hold
	queue  list.List // its queued requests, oldest first; the values are *queuedRequest
	paused int       // the number of its paused requests
}

// waiting returns the number of the flow's waiting requests.
func (f *flow) waiting() int { return f.queue.Len() + f.paused }

// oldest returns the flow's oldest queued request. There must be one.
func (f *flow) oldest() *queuedRequest {
	return f.queue.Front().Value.(*queuedRequest) //nolint:forcetypeassert // queue has nothing else
}

// isBefore reports whether free units go to flow a before flow b. Both must have queued requests.
func isBefore(a, b *flow) bool {
	if a.held != b.held {
		return a.held < b.held
	}
	return a.oldest().arrival < b.oldest().arrival
}

// queuedRequest is a request that is queued, or was until it was granted or given up.
type queuedRequest struct {
	flow    *flow
	element *list.Element // in flow.queue; nil once the request has left the queue
	cost    int64
	arrival uint64        // its number in the order of arrival
	granted chan struct{} // closed when the request is granted
}

// isQueued reports whether the request is still in its flow's queue.
func (r *queuedRequest) isQueued() bool { return r.element != nil }

// acquireAndUnlock acquires free units, or enqueues the request. Then it unlocks l.mu, which the caller has locked, and waits
// if the request was enqueued.
func (l *Limiter) acquireAndUnlock(ctx context.Context, key Flow, cost int64) (Grant, error) {
	if err := ctx.Err(); err != nil {
		l.mu.Unlock()
		return Grant{}, err
	}
	if granted, ok := l.tryAcquireLocked(key, cost); ok {
		l.mu.Unlock()
		return granted, nil
	}
	queued, err := l.enqueueLocked(l.flowLocked(key), cost)
	l.mu.Unlock()
	if err != nil {
		return Grant{}, err
	}
	return l.await(ctx, queued)
}

// await waits until a request is granted, and gives it up after MaxWait or when ctx ends.
func (l *Limiter) await(ctx context.Context, r *queuedRequest) (Grant, error) {
	granted := Grant{limiter: l, flow: r.flow, cost: r.cost}
	timer := time.NewTimer(l.config.MaxWait)
	defer timer.Stop()
	var err error
	select {
	case <-r.granted:
		return granted, nil
	case <-timer.C:
		err = OverloadTimeOut
	case <-ctx.Done():
		err = ctx.Err()
	}
	if l.giveUp(r) {
		return Grant{}, err
	}
	// The request was granted at the same moment.
	if ctx.Err() != nil {
		granted.Release()
		return Grant{}, ctx.Err()
	}
	return granted, nil
}

// boundedCost returns cost, but at least 1 and at most the units that one flow can hold.
func (l *Limiter) boundedCost(cost int64) int64 { return min(max(cost, 1), l.flowUnits) }

// tryAcquireLocked grants free units. It returns false:
//
//   - if requests are queued, since their turn comes first;
//   - if too few units are free;
//   - if the flow would hold more than it can.
func (l *Limiter) tryAcquireLocked(key Flow, cost int64) (Grant, bool) {
	if l.queuedFlows.Len() > 0 || cost > l.config.Capacity-l.inUse {
		return Grant{}, false
	}
	if f := l.flows[key]; f != nil && cost > l.flowUnits-f.held {
		return Grant{}, false
	}
	f := l.flowLocked(key)
	l.changeHeldLocked(f, cost)
	return Grant{limiter: l, flow: f, cost: cost}, true
}

// enqueueLocked puts a request at the end of its flow's queue, and grants all requests that can be granted, perhaps this one.
// If the request is not granted and must not wait, enqueueLocked takes it out again, and returns an [Overload].
func (l *Limiter) enqueueLocked(f *flow, cost int64) (*queuedRequest, error) {
	l.arrivals++
	r := &queuedRequest{flow: f, cost: cost, arrival: l.arrivals, granted: make(chan struct{})}
	l.waiting++
	l.changeLocked(f, func() { r.element = f.queue.PushBack(r) })
	l.grantLocked()
	err := l.checkQueueLocked(r)
	if err != nil {
		l.dequeueLocked(r)
	}
	return r, err
}

// checkQueueLocked returns an [Overload] if last, the request that was queued last, must not wait.
func (l *Limiter) checkQueueLocked(last *queuedRequest) error {
	switch {
	case !last.isQueued(): // it was granted at once
		return nil
	case l.config.MaxWait == 0:
		return OverloadTimeOut
	case last.flow.waiting() > l.flowMaxWaiting:
		return OverloadCallerQueueFull
	case l.waiting > l.config.MaxWaiting:
		return OverloadQueueFull
	}
	return nil
}

// dequeueLocked takes a request out of its flow's queue.
func (l *Limiter) dequeueLocked(r *queuedRequest) {
	l.waiting--
	l.changeLocked(r.flow, func() {
		r.flow.queue.Remove(r.element)
		r.element = nil
	})
}

// giveUp takes a request out of the queue. It returns false if the request has been granted in the meantime.
func (l *Limiter) giveUp(r *queuedRequest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !r.isQueued() {
		return false
	}
	l.dequeueLocked(r)
	l.grantLocked() // the request may have held up others
	return true
}

// grantLocked grants all requests that can be granted.
func (l *Limiter) grantLocked() {
	for {
		next := l.nextLocked()
		if next == nil || next.cost > l.config.Capacity-l.inUse {
			return
		}
		l.changeHeldLocked(next.flow, next.cost)
		l.dequeueLocked(next)
		close(next.granted)
	}
}

// nextLocked returns the request that is granted next, or nil if there is none: the oldest request of the first flow that can
// hold what this request costs. There may be too few free units for it.
func (l *Limiter) nextLocked() (next *queuedRequest) {
	l.queuedFlows.Ascend(func(f *flow) bool {
		if f.oldest().cost <= l.flowUnits-f.held {
			next = f.oldest()
		}
		return next == nil // whether to look at the next flow
	})
	return next
}

// changeHeldLocked adds change, which may be negative, to the units that a flow holds.
func (l *Limiter) changeHeldLocked(f *flow, change int64) {
	l.inUse += change
	l.changeLocked(f, func() { f.held += change })
}

// changePausedLocked adds change, which is 1 or -1, to the number of a flow's paused requests.
func (l *Limiter) changePausedLocked(f *flow, change int) {
	l.waiting += change
	l.changeLocked(f, func() { f.paused += change })
}

// changeLocked calls change, which changes fields of the flow f. The order of queuedFlows depends on these fields. So
// changeLocked takes f out of queuedFlows before the change, and puts it back afterwards. If f holds nothing and no request of
// it waits any more, changeLocked forgets f.
func (l *Limiter) changeLocked(f *flow, change func()) {
	if f.queue.Len() > 0 {
		l.queuedFlows.Delete(f)
	}
	change()
	if f.queue.Len() > 0 {
		l.queuedFlows.ReplaceOrInsert(f)
	} else if f.held == 0 && f.paused == 0 {
		delete(l.flows, f.key)
	}
}

// flowLocked returns the flow with a key. It adds the flow if there is none.
func (l *Limiter) flowLocked(key Flow) *flow {
	f := l.flows[key]
	if f == nil {
		f = &flow{key: key}
		l.flows[key] = f
	}
	return f
}
