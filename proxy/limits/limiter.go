package limits

import (
	"container/list"
	"context"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/google/btree"
)

// LimiterConfig bounds a [Limiter]. Units are whatever costs are given in: requests, or bytes.
type LimiterConfig struct {
	// Capacity is the number of units that can be held at a time; 0 is any number. One flow can hold half of it.
	Capacity int64
	// MaxWaiting bounds how many requests wait, paused ones included; those of one flow can be an eighth of them.
	MaxWaiting int
	// MaxWait is the time for which a request waits before it is refused. 0: nobody waits.
	MaxWait time.Duration
}

// flowsWaiting is which part of the requests that may wait can be of one flow.
const flowsWaiting = 8

// Overload is an error that says why a [Limiter] refuses a request, which is answered with 429.
type Overload string

// Error implements error.
func (o Overload) Error() string { return "too many requests: " + string(o) }

// The reasons to refuse.
const (
	// OverloadQueueFull means that as many requests wait as may wait.
	OverloadQueueFull Overload = "queue-full"
	// OverloadCallerQueueFull means that as many requests of this flow wait as may wait.
	OverloadCallerQueueFull Overload = "caller-queue-full"
	// OverloadTimeOut means that the request has waited as long as it may, or may not wait at all.
	OverloadTimeOut Overload = "time-out"
)

// Overloads returns every [Overload].
func Overloads() []Overload {
	return []Overload{OverloadQueueFull, OverloadCallerQueueFull, OverloadTimeOut}
}

// Stats is the state of a [Limiter] at one moment.
type Stats struct {
	// InUse is the number of units that are held.
	InUse int64
	// Waiting is the number of requests that wait, paused ones included.
	Waiting int
	// Refused counts the requests refused since the beginning, by reason. Those whose context ended are
	// not among them.
	Refused map[Overload]uint64
}

// Limiter bounds what is in flight, and shares it fairly between flows.
//
// Free units are granted at once, up to half of the capacity for one flow. If there are too few,
// requests wait. Units that become free go to the waiting flow that holds the fewest (max-min
// fairness); between flows that hold the same, to the one whose oldest request came first. A flow's
// own requests are granted in the order in which they came. The request that is next is not
// overtaken, so it is granted when enough has become free, however much it costs. A flow that holds
// as much as it may waits for its own requests to end, and holds up nobody.
//
// A request that costs more than one flow may hold is counted as costing just that much.
//
// A Limiter is safe for concurrent use. A flow that neither holds nor waits for anything costs no
// memory.
type Limiter struct {
	config      LimiterConfig
	perFlow     int64
	flowWaiting int // how many requests of one flow may wait

	mu      sync.Mutex
	inUse   int64
	waiting int
	arrived uint64 // counts requests that had to wait
	refused map[Overload]uint64
	flows   map[Flow]*flow
	// inNeed has the flows with requests in their queues, in the order in which these are granted. A flow is
	// taken out before what it holds, or its oldest request, changes.
	inNeed *btree.BTreeG[*flow]
}

// flow is what one flow holds and waits for.
type flow struct {
	key    Flow
	held   int64
	queue  list.List // of *claim, oldest first
	paused int       // how many requests are
}

// waiting returns how many of its requests wait, paused ones included.
func (f *flow) waiting() int { return f.queue.Len() + f.paused }

// oldest returns the first of the requests that wait. There must be one.
func (f *flow) oldest() *claim { return f.queue.Front().Value.(*claim) } //nolint:forcetypeassert // it has nothing else

// claim is a request that waits.
type claim struct {
	flow    *flow
	at      *list.Element // in flow.queue; nil once it is granted
	cost    int64
	arrival uint64
	granted chan struct{} // closed when it is
}

// inNeedDegree is that of a small tree whose items come and go.
const inNeedDegree = 8

// NewLimiter returns a Limiter in which nothing is held. No bound may be negative.
func NewLimiter(config LimiterConfig) *Limiter {
	if config.Capacity == 0 {
		config.Capacity = math.MaxInt64
	}
	return &Limiter{
		config: config, perFlow: config.Capacity/2 + config.Capacity%2, flowWaiting: max(1, config.MaxWaiting/flowsWaiting),
		refused: map[Overload]uint64{}, flows: map[Flow]*flow{}, inNeed: btree.NewG(inNeedDegree, needsMore),
	}
}

// needsMore orders flows that wait.
func needsMore(a, b *flow) bool {
	if a.held != b.held {
		return a.held < b.held
	}
	return a.oldest().arrival < b.oldest().arrival
}

// Grant is what [Limiter.Acquire] gives. The zero Grant holds nothing. A Grant must not be copied
// once Release may be called, nor be used by several goroutines at once.
type Grant struct {
	limiter *Limiter
	flow    *flow
	cost    int64
	paused  bool
}

// Release gives back what was granted. Only the first call does anything.
func (g *Grant) Release() {
	if l := g.limiter; l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if g.paused {
			l.changePausedLocked(g.flow, -1)
		} else {
			l.releaseLocked(g.flow, g.cost)
		}
		*g = Grant{}
	}
}

// Pause gives back what was granted while its request waits for something else, and keeps a place among those
// that wait. If there is no such place, the request keeps what it holds.
func (g *Grant) Pause() {
	l := g.limiter
	if l == nil || g.paused {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting < l.config.MaxWaiting && g.flow.waiting() < l.flowWaiting {
		g.paused = true
		l.changePausedLocked(g.flow, 1)
		l.releaseLocked(g.flow, g.cost)
	}
}

// Resume takes again what Pause has given back, and waits for it if it must. With an error, which is as
// [Limiter.Acquire]'s, nothing is held.
func (g *Grant) Resume(ctx context.Context) error {
	if !g.paused {
		return nil
	}
	l := g.limiter
	l.mu.Lock()
	l.changePausedLocked(g.flow, -1)
	granted, waits, err := l.takeLocked(ctx, g.flow.key, g.cost)
	l.mu.Unlock()
	if waits != nil {
		granted, err = l.await(ctx, waits)
	}
	*g = granted
	return err
}

// Acquire takes cost units (one at least) for a flow, and waits for them if it must. The error is an
// [Overload], or ctx's own if ctx ended first; then nothing is held.
func (l *Limiter) Acquire(ctx context.Context, of Flow, cost int64) (Grant, error) {
	l.mu.Lock()
	granted, waits, err := l.takeLocked(ctx, of, l.costOf(cost))
	l.mu.Unlock()
	if waits != nil {
		return l.await(ctx, waits)
	}
	return granted, err
}

// takeLocked grants what is free, or queues a claim and returns it.
func (l *Limiter) takeLocked(ctx context.Context, of Flow, cost int64) (Grant, *claim, error) {
	if err := ctx.Err(); err != nil {
		return Grant{}, nil, err
	}
	if granted, ok := l.tryLocked(of, cost); ok {
		return granted, nil, nil
	}
	waits, refusal := l.queueLocked(l.flowLocked(of), cost)
	if refusal != "" {
		return Grant{}, nil, refusal
	}
	return Grant{}, waits, nil
}

// await waits until a claim is granted.
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
	if !l.leave(c, err) { // granted in the meantime
		if ctx.Err() == nil {
			return granted, nil
		}
		granted.Release()
	}
	return Grant{}, err
}

// TryAcquire is Acquire for who can do without: it does not wait, no refusal is counted, and half of the
// capacity is left to others.
func (l *Limiter) TryAcquire(of Flow, cost int64) (Grant, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cost > l.config.Capacity/2-l.inUse {
		return Grant{}, false
	}
	return l.tryLocked(of, l.costOf(cost))
}

// costOf is what a request counts as costing.
func (l *Limiter) costOf(cost int64) int64 { return min(max(cost, 1), l.perFlow) }

// tryLocked grants what is free, unless others wait for it.
func (l *Limiter) tryLocked(of Flow, cost int64) (Grant, bool) {
	if l.inNeed.Len() > 0 || cost > l.config.Capacity-l.inUse {
		return Grant{}, false
	}
	if f := l.flows[of]; f != nil && cost > l.perFlow-f.held {
		return Grant{}, false
	}
	f := l.flowLocked(of)
	l.inUse += cost
	f.held += cost
	return Grant{limiter: l, flow: f, cost: cost}, true
}

// Stats returns the state of now.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{InUse: l.inUse, Waiting: l.waiting, Refused: maps.Clone(l.refused)}
}

// queueLocked lets a request wait, and grants what can be granted, which may be this very request. If
// it may not wait, the reason is returned.
func (l *Limiter) queueLocked(f *flow, cost int64) (*claim, Overload) {
	l.arrived++
	c := &claim{flow: f, cost: cost, arrival: l.arrived, granted: make(chan struct{})}
	l.changeLocked(f, func() { c.at = f.queue.PushBack(c) })
	l.waiting++
	l.grantLocked()
	var why Overload
	switch {
	case c.at == nil:
		return c, ""
	case l.config.MaxWait == 0:
		why = OverloadTimeOut
	case f.waiting() > l.flowWaiting:
		why = OverloadCallerQueueFull
	case l.waiting > l.config.MaxWaiting:
		why = OverloadQueueFull
	default:
		return c, ""
	}
	l.refused[why]++
	l.dequeueLocked(c)
	return nil, why
}

// leave takes a request out of the queue, unless it has been granted in the meantime. An [Overload] is
// counted.
func (l *Limiter) leave(c *claim, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.at == nil {
		return false
	}
	if why, is := err.(Overload); is { //nolint:errorlint // it is not wrapped
		l.refused[why]++
	}
	l.dequeueLocked(c)
	l.grantLocked() // it may have held up others
	return true
}

// changePausedLocked counts a request of a flow as paused (1), or no longer (-1).
func (l *Limiter) changePausedLocked(f *flow, by int) {
	l.waiting += by
	l.changeLocked(f, func() { f.paused += by })
}

// releaseLocked takes back what was granted.
func (l *Limiter) releaseLocked(f *flow, cost int64) {
	l.inUse -= cost
	l.changeLocked(f, func() { f.held -= cost })
	l.grantLocked()
}

// grantLocked grants all that can be granted.
func (l *Limiter) grantLocked() {
	for {
		var next *claim
		l.inNeed.Ascend(func(f *flow) bool {
			if next = f.oldest(); next.cost > l.perFlow-f.held {
				next = nil // it waits for its own
			}
			return next == nil
		})
		if next == nil || next.cost > l.config.Capacity-l.inUse {
			return
		}
		l.inUse += next.cost
		l.waiting--
		l.changeLocked(next.flow, func() {
			next.flow.held += next.cost
			next.flow.queue.Remove(next.at)
			next.at = nil
		})
		close(next.granted)
	}
}

// dequeueLocked takes a request out that is not granted.
func (l *Limiter) dequeueLocked(c *claim) {
	l.waiting--
	l.changeLocked(c.flow, func() {
		c.flow.queue.Remove(c.at)
		c.at = nil
	})
}

// changeLocked changes what a flow holds or waits for, and forgets the flow if that is nothing.
func (l *Limiter) changeLocked(f *flow, change func()) {
	if f.queue.Len() > 0 {
		l.inNeed.Delete(f)
	}
	change()
	if f.queue.Len() > 0 {
		l.inNeed.ReplaceOrInsert(f)
	} else if f.held == 0 && f.paused == 0 {
		delete(l.flows, f.key)
	}
}

func (l *Limiter) flowLocked(of Flow) *flow {
	f := l.flows[of]
	if f == nil {
		f = &flow{key: of}
		l.flows[of] = f
	}
	return f
}
