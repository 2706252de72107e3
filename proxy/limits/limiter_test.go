package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The main test of this file is [TestLimiterAgainstModel]. It does the same random steps with a [Limiter] and with a [model],
// a simple and slow form of the same rules. After each step, it compares the state of every request.

// wantIdle requires that nothing is held, that nobody waits, and that no flow is remembered.
func wantIdle(t *testing.T, l *Limiter) {
	t.Helper()
	if s := l.Stats(); s.InUse != 0 || s.Waiting != 0 {
		t.Errorf("got %+v, want nothing in use, and nobody waiting", s)
	}
	if len(l.flows) != 0 || l.queuedFlows.Len() != 0 {
		t.Errorf("the limiter remembers %d flows, and %d are queued, want none", len(l.flows), l.queuedFlows.Len())
	}
}

// acquiring is a request to a [Limiter]: a call of Acquire or Resume, in a goroutine of its own.
type acquiring struct {
	flow  Flow
	leave context.CancelFunc // ends the context of the call
	done  chan struct{}      // closed when the call has returned
	grant Grant
	err   error
}

// acquire starts a call of Acquire.
func acquire(t *testing.T, l *Limiter, flow byte, cost int64) *acquiring {
	a := &acquiring{flow: Flow{flow}}
	a.start(t, func(ctx context.Context) { a.grant, a.err = l.Acquire(ctx, a.flow, cost) })
	return a
}

// start runs call in a goroutine, with a context that ends with a.leave, and waits until call has returned or is blocked.
func (a *acquiring) start(t *testing.T, call func(context.Context)) {
	ctx, leave := context.WithCancel(t.Context())
	a.leave = leave
	a.done = make(chan struct{})
	go func() {
		call(ctx)
		close(a.done)
	}()
	synctest.Wait()
}

// The states of a request, of the limiter or of the model. The state of a refused request is the text of its error.
const (
	waits    = "waits"
	holds    = "holds"
	paused   = "paused"
	released = "released"
)

// state returns the state of the request.
func (a *acquiring) state() string {
	select {
	case <-a.done:
	default:
		return waits
	}
	switch {
	case a.err != nil:
		return a.err.Error()
	case a.grant.limiter == nil:
		return released
	case a.grant.paused:
		return paused
	}
	return holds
}

// model does what a [Limiter] does, but more simply: it has one list of requests, which it searches from the beginning each
// time.
type model struct {
	config LimiterConfig
	all    []*modelRequest // in the order of arrival
}

type modelRequest struct {
	flow  byte
	cost  int64
	until time.Time // when it has waited for MaxWait
	state string    // waits, holds, paused, released or an error
}

// anyFlow stands for all flows, which are numbered from 1.
const anyFlow = 0

// inState returns the requests of a flow that are in a state, oldest first.
func (m *model) inState(state string, flow byte) (all []*modelRequest) {
	for _, r := range m.all {
		if r.state == state && (flow == anyFlow || r.flow == flow) {
			all = append(all, r)
		}
	}
	return all
}

// held returns the number of units that a flow holds.
func (m *model) held(flow byte) (sum int64) {
	for _, r := range m.inState(holds, flow) {
		sum += r.cost
	}
	return sum
}

// perFlow returns the most that a flow may hold.
func (m *model) perFlow() int64 { return (m.config.Capacity + 1) / 2 }

// waitingPerFlow returns the number of requests of a flow that may wait.
func (m *model) waitingPerFlow() int { return max(1, m.config.MaxWaiting/flowsToFillQueue) }

// next returns the request that is granted next: the oldest request of the flow that holds least, among the flows that may hold
// their oldest request.
func (m *model) next() (next *modelRequest) {
	for _, r := range m.inState(waits, anyFlow) {
		isOldest := r == m.inState(waits, r.flow)[0]
		flowMayHold := m.held(r.flow)+r.cost <= m.perFlow()
		holdsLess := next == nil || m.held(r.flow) < m.held(next.flow)
		if isOldest && flowMayHold && holdsLess {
			next = r
		}
	}
	return next
}

// setState sets the state of a request, and then grants all that can be granted.
func (m *model) setState(r *modelRequest, state string) {
	r.state = state
	for next := m.next(); next != nil && m.held(anyFlow)+next.cost <= m.config.Capacity; next = m.next() {
		next.state = holds
	}
}

// acquire adds a request, as Acquire does.
func (m *model) acquire(flow byte, cost int64) {
	r := &modelRequest{flow: flow, cost: min(max(cost, 1), m.perFlow())}
	m.all = append(m.all, r)
	m.wait(r)
	switch {
	case r.state != waits: // it was granted at once, or refused by wait
	case m.waiting(flow) > m.waitingPerFlow():
		r.state = OverloadCallerQueueFull.Error()
	case m.waiting(anyFlow) > m.config.MaxWaiting:
		r.state = OverloadQueueFull.Error()
	}
}

// wait makes a request wait. The request must be the last in the order of arrival. It may be granted at once. If it is not
// granted, and MaxWait is 0, it is refused at once.
func (m *model) wait(r *modelRequest) {
	r.until = time.Now().Add(m.config.MaxWait)
	m.setState(r, waits)
	if r.state == waits && m.config.MaxWait == 0 {
		r.state = OverloadTimeOut.Error()
	}
}

// waiting returns the number of requests of a flow that wait or are paused.
func (m *model) waiting(flow byte) int {
	return len(m.inState(waits, flow)) + len(m.inState(paused, flow))
}

// pause makes a request give back what it holds, if one more request may wait.
func (m *model) pause(r *modelRequest) {
	if m.waiting(anyFlow) < m.config.MaxWaiting && m.waiting(r.flow) < m.waitingPerFlow() {
		m.setState(r, paused)
	}
}

// expire refuses the requests that have waited for too long.
func (m *model) expire() {
	for {
		waiting := m.inState(waits, anyFlow)
		if len(waiting) == 0 || waiting[0].until.After(time.Now()) {
			return
		}
		m.setState(waiting[0], OverloadTimeOut.Error())
	}
}

// TestLimiterAgainstModel: in random histories, each request has the same state in a Limiter as in the model. No more than the
// capacity is held, and no more than half of it by one flow.
func TestLimiterAgainstModel(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { playAgainstModel(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// comparison does the same random steps with a Limiter and with the model.
type comparison struct {
	random  *rand.Rand
	model   *model
	limiter *Limiter
	maxCost int64        // the highest cost of a request
	calls   []*acquiring // the limiter's requests; calls[i] is the same request as model.all[i]
}

// playAgainstModel does 80 random steps, and compares after each. Then it releases everything.
func playAgainstModel(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	config := LimiterConfig{
		Capacity: 1 + random.Int64N(12), MaxWaiting: random.IntN(40), MaxWait: time.Duration(random.IntN(4)) * 5 * time.Second,
	}
	maxCost := 1 + random.Int64N(config.Capacity+2) // up to more than the capacity
	c := &comparison{random: random, model: &model{config: config}, limiter: NewLimiter(config), maxCost: maxCost}
	for i := range 80 {
		time.Sleep(time.Millisecond) // so that no two waits end at once
		c.model.expire()
		synctest.Wait()
		c.doStep(t)
		c.check(t, fmt.Sprintf("step %d", i))
	}
	for _, state := range []string{holds, paused} {
		for r, call := c.randomIn(state); r != nil; r, call = c.randomIn(state) {
			c.release(r, call)
			c.check(t, "the end")
		}
	}
	wantIdle(t, c.limiter)
}

// doStep does a random step: in 5 of 14 cases a new request, in 3 of 14 a release, and so on. If there is no request for a step
// (none holds anything, say), a later case of the switch may fit instead, or nothing is done.
func (c *comparison) doStep(t *testing.T) {
	modelHolding, holding := c.randomIn(holds)
	modelWaiting, waiting := c.randomIn(waits)
	modelPaused, pausing := c.randomIn(paused)
	n := c.random.IntN(14)
	switch {
	case n < 5: // a new request
		flow := byte(1 + c.random.IntN(4))
		cost := c.random.Int64N(c.maxCost + 1)
		c.model.acquire(flow, cost)
		c.calls = append(c.calls, acquire(t, c.limiter, flow, cost))
	case n < 8 && holding != nil:
		c.release(modelHolding, holding)
	case n < 9 && waiting != nil: // a caller leaves
		c.model.setState(modelWaiting, context.Canceled.Error())
		waiting.leave()
	case n < 11 && holding != nil:
		c.model.pause(modelHolding)
		holding.grant.Pause()
	case n < 13 && pausing != nil: // a paused request resumes, as the last in the order of arrival
		i := slices.Index(c.calls, pausing)
		c.model.all = append(slices.Delete(c.model.all, i, i+1), modelPaused)
		c.calls = append(slices.Delete(c.calls, i, i+1), pausing)
		c.model.wait(modelPaused)
		pausing.start(t, func(ctx context.Context) { pausing.err = pausing.grant.Resume(ctx) })
	case n == 13 && pausing != nil: // a paused request ends without resuming
		c.release(modelPaused, pausing)
	case waiting != nil: // time passes, until the next request has waited for MaxWait
		time.Sleep(time.Until(c.model.inState(waits, anyFlow)[0].until))
		c.model.expire()
	}
}

// randomIn returns a random request in a state, of the model and of the limiter, or nil if there is none.
func (c *comparison) randomIn(state string) (*modelRequest, *acquiring) {
	inState := c.model.inState(state, anyFlow)
	if len(inState) == 0 {
		return nil, nil
	}
	r := inState[c.random.IntN(len(inState))]
	return r, c.calls[slices.Index(c.model.all, r)]
}

// release releases what a request holds, of the model and of the limiter.
func (c *comparison) release(r *modelRequest, call *acquiring) {
	c.model.setState(r, released)
	call.grant.Release()
	call.grant.Release() // does nothing
}

// check requires that the limiter is in the state of the model.
func (c *comparison) check(t *testing.T, when string) {
	t.Helper()
	synctest.Wait()
	heldByFlow := map[Flow]int64{}
	for i, call := range c.calls {
		got := call.state()
		if want := c.model.all[i].state; got != want {
			t.Fatalf("%+v, %s: request %d of flow %d: got state %s, want %s", c.model.config, when, i, call.flow[0], got, want)
		}
		if got == holds {
			heldByFlow[call.flow] += call.grant.cost
		}
	}
	for flow, held := range heldByFlow {
		if held > c.model.perFlow() {
			t.Fatalf("%s: flow %d holds %d, want at most %d", when, flow[0], held, c.model.perFlow())
		}
	}
	got := c.limiter.Stats()
	want := Stats{InUse: c.model.held(anyFlow), Waiting: c.model.waiting(anyFlow)}
	if got != want || got.InUse > c.model.config.Capacity {
		t.Fatalf("%+v, %s: got %+v, want %+v, and no more in use than the capacity", c.model.config, when, got, want)
	}
}

// TestLongRunningRequestsDoNotWait: of five long-running requests at a time, one flow can have three (half of them, rounded
// up). Any further request is refused at once. Short requests have no bound if none is given.
func TestLongRunningRequestsDoNotWait(t *testing.T) {
	l := New(Config{LongRunning: 5})
	var grants []Grant
	for _, tt := range []struct {
		flow    byte
		wantErr error
	}{
		{flow: 1},
		{flow: 1},
		{flow: 1},
		{flow: 1, wantErr: OverloadTimeOut},
		{flow: 2},
		{flow: 2},
		{flow: 3, wantErr: OverloadTimeOut},
	} { // one after the other; nothing is released meanwhile
		grant, err := l.LongRunning.Acquire(t.Context(), Flow{tt.flow}, 1)
		if !errors.Is(err, tt.wantErr) {
			t.Errorf("flow %d: got error %v, want %v", tt.flow, err, tt.wantErr)
		}
		grants = append(grants, grant)
	}
	for i := range grants {
		grants[i].Release()
	}
	wantIdle(t, l.LongRunning)
	for range 1000 { // short requests have no bound
		if _, err := l.Short.Acquire(t.Context(), Flow{1}, 1); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLimiterRace: 16 concurrent callers never hold more than the capacity together. (Run it with the race detector.)
func TestLimiterRace(t *testing.T) {
	const capacity, flows = 3, 5
	l := NewLimiter(LimiterConfig{Capacity: capacity, MaxWaiting: 100, MaxWait: time.Millisecond})
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			for range 200 {
				ctx, leave := context.WithTimeout(t.Context(), time.Duration(random.IntN(1000))*time.Microsecond)
				grant, err := l.Acquire(ctx, Flow{byte(i % flows)}, random.Int64N(capacity))
				if err == nil && l.Stats().InUse > capacity {
					t.Errorf("got more than %d units in use", capacity)
				}
				grant.Release()
				leave()
			}
		})
	}
	all.Wait()
	wantIdle(t, l)
}

// TestBodiesLeaveRoom: all bodies together take at most half of the bytes, so that another caller still gets a large answer.
func TestBodiesLeaveRoom(t *testing.T) {
	const capacity, bodySize = 128 << 20, 3 << 20
	l := New(Config{Bytes: capacity})
	kept := int64(0)
	for flow := range byte(3) {
		for {
			if _, ok := l.TryAcquireBody(Flow{flow}, bodySize); !ok {
				break
			}
			kept += bodySize
		}
	}
	if kept < capacity/4 || kept > capacity/2 {
		t.Errorf("got bodies of %d bytes kept in all, want %d to %d", kept, capacity/4, capacity/2)
	}
	anotherFlow := Flow{9}
	if _, err := l.AcquireAnswer(t.Context(), anotherFlow, capacity/2); err != nil {
		t.Errorf("an answer of half of all bytes: got error %v", err)
	}
}
