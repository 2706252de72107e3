package limits

import (
	"container/list"
	"context"
	"math"
	"sync"
	"time"

	"github.com/google/btree"
)

// Limiter bounds the units that requests hold, and shares them fairly between flows.
//
// Free units are granted at once, up to half of the capacity for one flow. If there are too few, requests wait. Units that
// become free go to the waiting flow that holds the fewest (max-min fairness). Of flows that hold equally many, the one
// whose oldest request came first gets them. Within a flow, requests are granted in the order in which they came. A cheaper
// request does not overtake the one whose turn it is: units stay free until there are enough for that one. A flow that holds
// as many units as it can waits for its own requests to end, and holds up no other flow.
//
// For example, flows A and B hold four units each and flow C holds two, of a capacity of ten. A and B wait for one more, A
// for longer. The first unit that C releases goes to A, the second to B.
//
// A request that costs more than one flow can hold is charged only what one flow can hold.
//
// A request that waits takes a place in the queue. So does a request that is paused: it has given its units back for a while
// ([Grant.Pause]). There are LimiterConfig.MaxWaiting places, an eighth of them (at least one) for one flow.
//
// A Limiter is safe for concurrent use. A flow that neither holds nor waits for anything takes no memory.
type Limiter struct {
	config     LimiterConfig
	flowUnits  int64 // the number of units that one flow can hold
	flowPlaces int   // the number of places that one flow can have

	mu      sync.Mutex
	inUse   int64
	places  int    // the number of places that are taken: of requests that wait or are paused
	arrived uint64 // the number of claims so far
	flows   map[Flow]*flow
	// waitingFlows has the flows with waiting requests, in the order in which these are granted.
	waitingFlows *btree.BTreeG[*flow]
}

// LimiterConfig configures a [Limiter]. Its units are requests, or bytes.
type LimiterConfig struct {
	// Capacity is the number of units that can be held at a time, half of them (rounded up) by one flow; 0 means no bound.
	Capacity int64
	// MaxWaiting is the number of places: so many requests may wait, or be paused, at a time.
	MaxWaiting int
	// MaxWait is the time for which a request waits before it is refused. If it is 0, no request waits.
	MaxWait time.Duration
}

// flowsToFillQueue is the number of flows that it takes to fill all places.
const flowsToFillQueue = 8

// Overload is the reason for which a [Limiter] refuses a request, which is answered with 429.
type Overload string

// Error implements error.
func (o Overload) Error() string { return "too many requests: " + string(o) }

const (
	// OverloadQueueFull means that all places are taken.
	OverloadQueueFull Overload = "queue-full"
	// OverloadCallerQueueFull means that the request's flow has all the places that one flow can have.
	OverloadCallerQueueFull Overload = "caller-queue-full"
	// OverloadTimeOut means that the request has waited for LimiterConfig.MaxWait, which may be 0.
	OverloadTimeOut Overload = "time-out"
)

// Stats is the state of a [Limiter] at one moment.
type Stats struct {
	// InUse is the number of units that are held.
	InUse int64
	// Waiting is the number of requests that wait or are paused.
	Waiting int
}

// waitingFlowsDegree is the degree of a B-tree that is mostly small, and whose items come and go.
const waitingFlowsDegree = 8

// NewLimiter returns a Limiter in which nothing is held. No bound may be negative.
func NewLimiter(config LimiterConfig) *Limiter {
	if config.Capacity == 0 {
		config.Capacity = math.MaxInt64
	}
	return &Limiter{
		config:       config,
		flowUnits:    config.Capacity/2 + config.Capacity%2,
		flowPlaces:   max(1, config.MaxWaiting/flowsToFillQueue),
		flows:        map[Flow]*flow{},
		waitingFlows: btree.NewG(waitingFlowsDegree, isNext),
	}
}

// Acquire acquires cost units (at least one) for a flow, and waits for them if necessary. An error is an [Overload] or the
// error of ctx.
func (l *Limiter) Acquire(ctx context.Context, key Flow, cost int64) (Grant, error) {
	l.mu.Lock()
	return l.acquireAndUnlock(ctx, key, l.boundedCost(cost))
}

// TryAcquire acquires cost units for a request that can do without them. It returns false unless half of the capacity stays
// free and [Limiter.Acquire] would not wait.
func (l *Limiter) TryAcquire(key Flow, cost int64) (Grant, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cost > l.config.Capacity/2-l.inUse {
		return Grant{}, false
	}
	return l.tryLocked(key, l.boundedCost(cost))
}

// Stats returns the current state.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{InUse: l.inUse, Waiting: l.places}
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
		l.releaseLocked(g.flow, g.cost)
	}
	*g = Grant{}
}

// Pause gives the units back while the request waits for something else, and takes a place instead. If none is left, the
// request keeps its units.
func (g *Grant) Pause() {
	l := g.limiter
	if l == nil || g.paused {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.places < l.config.MaxWaiting && g.flow.places() < l.flowPlaces {
		g.paused = true
		l.changePausedLocked(g.flow, 1)
		l.releaseLocked(g.flow, g.cost)
	}
}

// Resume acquires the units again that Pause has given back. It may wait for them, like a new request, at the end of its
// flow's queue. Its errors are those of [Limiter.Acquire]. After an error the Grant holds nothing.
func (g *Grant) Resume(ctx context.Context) error {
	if !g.paused {
		return nil
	}
	l := g.limiter
	l.mu.Lock()
	l.changePausedLocked(g.flow, -1)
	var err error
	*g, err = l.acquireAndUnlock(ctx, g.flow.key, g.cost)
	return err
}

// flow has the requests of one [Flow].
type flow struct {
	key    Flow
	held   int64     // the number of units that its requests hold
	queue  list.List // its waiting requests, oldest first; the values are *claim
	paused int       // the number of its paused requests
}

// places returns the number of places that the flow has.
func (f *flow) places() int { return f.queue.Len() + f.paused }

// oldest returns the flow's oldest waiting request. There must be one.
func (f *flow) oldest() *claim { return f.queue.Front().Value.(*claim) } //nolint:forcetypeassert // queue has nothing else

// claim is a waiting request.
type claim struct {
	flow    *flow
	element *list.Element // in flow.queue; nil once the claim is granted or taken back
	cost    int64
	arrival uint64
	granted chan struct{} // closed when the claim is granted
}

// isWaiting reports whether the claim is neither granted nor taken back.
func (c *claim) isWaiting() bool { return c.element != nil }

// isNext reports whether free units go to flow a before flow b. Both must have waiting requests.
func isNext(a, b *flow) bool {
	if a.held != b.held {
		return a.held < b.held
	}
	return a.oldest().arrival < b.oldest().arrival
}

// acquireAndUnlock acquires units that are free, or unlocks l.mu and waits for them. It returns with l.mu unlocked.
func (l *Limiter) acquireAndUnlock(ctx context.Context, key Flow, cost int64) (Grant, error) {
	if err := ctx.Err(); err != nil {
		l.mu.Unlock()
		return Grant{}, err
	}
	if granted, ok := l.tryLocked(key, cost); ok {
		l.mu.Unlock()
		return granted, nil
	}
	queued, overload := l.enqueueLocked(l.flowLocked(key), cost)
	l.mu.Unlock()
	if overload != "" {
		return Grant{}, overload
	}
	return l.await(ctx, queued)
}

// await waits until a claim is granted, and gives up after MaxWait or when ctx ends.
func (l *Limiter) await(ctx context.Context, c *claim) (Grant, error) {
	granted := Grant{limiter: l, flow: c.flow, cost: c.cost}
	timer := time.NewTimer(l.config.MaxWait)
	defer timer.Stop()
	var err error
	select {
	case <-c.granted:
		return granted, nil
	case <-timer.C:
		err = OverloadTimeOut
	case <-ctx.Done():
		err = ctx.Err()
	}
	if l.giveUp(c) {
		return Grant{}, err
	}
	// The claim was granted before it could be given up.
	if err := ctx.Err(); err != nil {
		granted.Release()
		return Grant{}, err
	}
	return granted, nil
}

// boundedCost returns cost, but at least 1 and at most the units that one flow can hold.
func (l *Limiter) boundedCost(cost int64) int64 { return min(max(cost, 1), l.flowUnits) }

// tryLocked grants free units. It returns false if requests wait, if too few units are free, or if the flow would hold too
// many.
func (l *Limiter) tryLocked(key Flow, cost int64) (Grant, bool) {
	if l.waitingFlows.Len() > 0 || cost > l.config.Capacity-l.inUse {
		return Grant{}, false
	}
	if f := l.flows[key]; f != nil && cost > l.flowUnits-f.held {
		return Grant{}, false
	}
	f := l.flowLocked(key)
	l.inUse += cost
	f.held += cost
	return Grant{limiter: l, flow: f, cost: cost}, true
}

// enqueueLocked puts a request at the end of its flow's queue, and grants all requests that can be granted, perhaps this one. (A
// request that is granted at once needs no place, so the bounds count only afterwards.) If it is not granted and may not wait,
// enqueueLocked takes it out again, and returns why.
func (l *Limiter) enqueueLocked(f *flow, cost int64) (*claim, Overload) {
	l.arrived++
	c := &claim{flow: f, cost: cost, arrival: l.arrived, granted: make(chan struct{})}
	l.changeLocked(f, func() { c.element = f.queue.PushBack(c) })
	l.places++
	l.grantLocked()
	var overload Overload
	switch {
	case !c.isWaiting(): // it was granted
	case l.config.MaxWait == 0:
		overload = OverloadTimeOut
	case f.places() > l.flowPlaces:
		overload = OverloadCallerQueueFull
	case l.places > l.config.MaxWaiting:
		overload = OverloadQueueFull
	}
	if overload != "" {
		l.dequeueLocked(c, noUnits)
	}
	return c, overload
}

// giveUp takes a request out of the queue. It returns false if the request has been granted in the meantime.
func (l *Limiter) giveUp(c *claim) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.isWaiting() {
		return false
	}
	l.dequeueLocked(c, noUnits)
	l.grantLocked() // the request may have held up others
	return true
}

// changePausedLocked adds change, which is 1 or -1, to the number of a flow's paused requests.
func (l *Limiter) changePausedLocked(f *flow, change int) {
	l.places += change
	l.changeLocked(f, func() { f.paused += change })
}

// releaseLocked takes back a flow's units.
func (l *Limiter) releaseLocked(f *flow, cost int64) {
	l.inUse -= cost
	l.changeLocked(f, func() { f.held -= cost })
	l.grantLocked()
}

// grantLocked grants all requests that can be granted.
func (l *Limiter) grantLocked() {
	for {
		var next *claim
		l.waitingFlows.Ascend(func(f *flow) bool {
			next = f.oldest()
			if next.cost > l.flowUnits-f.held {
				next = nil // this flow waits for its own requests to end
			}
			return next == nil
		})
		if next == nil || next.cost > l.config.Capacity-l.inUse {
			return
		}
		l.dequeueLocked(next, next.cost)
		close(next.granted)
	}
}

// noUnits is what a request gets that is taken out of its queue, but not granted.
const noUnits = 0

// dequeueLocked takes a waiting request out of its queue, and gives it units: its cost if it is granted, otherwise noUnits.
func (l *Limiter) dequeueLocked(c *claim, units int64) {
	l.places--
	l.inUse += units
	l.changeLocked(c.flow, func() {
		c.flow.held += units
		c.flow.queue.Remove(c.element)
		c.element = nil
	})
}

// changeLocked calls change, which changes a flow's fields. waitingFlows is ordered by held and queue, so the flow is taken out
// before and put back afterwards. A flow that has nothing left is forgotten.
func (l *Limiter) changeLocked(f *flow, change func()) {
	if f.queue.Len() > 0 {
		l.waitingFlows.Delete(f)
	}
	change()
	if f.queue.Len() > 0 {
		l.waitingFlows.ReplaceOrInsert(f)
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
