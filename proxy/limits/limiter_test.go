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

// wantIdle requires that nothing is held, and that nobody waits.
func wantIdle(t *testing.T, l *Limiter) {
	t.Helper()
	if s := l.Stats(); s.InUse != 0 || s.Waiting != 0 {
		t.Errorf("got %+v, want nothing in use, and nobody waiting", s)
	}
	if len(l.flows) != 0 || l.queuedFlows.Len() != 0 {
		t.Errorf("the limiter remembers %d flows, of which %d wait, want none", len(l.flows), l.queuedFlows.Len())
	}
}

// acquiring is a call of Acquire or Resume, in a goroutine of its own.
type acquiring struct {
	flow  Flow
	leave context.CancelFunc
	done  chan struct{} // closed when the call has returned
	grant Grant
	err   error
}

// acquire starts a call of Acquire.
func acquire(t *testing.T, l *Limiter, flow byte, cost int64) *acquiring {
	a := &acquiring{flow: Flow{flow}}
	a.start(t, func(ctx context.Context) { a.grant, a.err = l.Acquire(ctx, a.flow, cost) })
	return a
}

// start runs call in a goroutine, with a context that ends when a leaves.
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

// The states of a request. The state of a refused request is its error.
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

// model does what a [Limiter] does in the plainest way: with a list of requests that is searched from the beginning each time.
type model struct {
	config LimiterConfig
	all    []*modelRequest // in the order of arrival
}

type modelRequest struct {
	flow  byte
	cost  int64
	until time.Time // the end of the wait
	state string
}

// anyFlow stands for all flows, which are numbered from 1.
const anyFlow = 0

// inState returns the requests of a flow in a state.
func (m *model) inState(state string, flow byte) (all []*modelRequest) {
	for _, r := range m.all {
		if r.state == state && (flow == anyFlow || r.flow == flow) {
			all = append(all, r)
		}
	}
	return all
}

// held returns what a flow holds.
func (m *model) held(flow byte) (sum int64) {
	for _, r := range m.inState(holds, flow) {
		sum += r.cost
	}
	return sum
}

// perFlow returns the most that a flow may hold.
func (m *model) perFlow() int64 { return (m.config.Capacity + 1) / 2 }

// next returns the request that is granted next: the oldest request of the flow that holds least, among the flows that may hold
// their oldest request.
func (m *model) next() (next *modelRequest) {
	for _, r := range m.inState(waits, anyFlow) {
		oldest := r == m.inState(waits, r.flow)[0]
		if oldest && m.held(r.flow)+r.cost <= m.perFlow() && (next == nil || m.held(r.flow) < m.held(next.flow)) {
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
	case r.state != waits:
	case m.waiting(flow) > max(1, m.config.MaxWaiting/flowsToFillQueue):
		r.state = OverloadCallerQueueFull.Error()
	case m.waiting(anyFlow) > m.config.MaxWaiting:
		r.state = OverloadQueueFull.Error()
	}
}

// wait makes the last request wait, if it may wait at all.
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

// pause makes a request give back what it holds, if there is a place to wait.
func (m *model) pause(r *modelRequest) {
	if m.waiting(anyFlow) < m.config.MaxWaiting && m.waiting(r.flow) < max(1, m.config.MaxWaiting/flowsToFillQueue) {
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

func playAgainstModel(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	config := LimiterConfig{
		Capacity: 1 + random.Int64N(12), MaxWaiting: random.IntN(40), MaxWait: time.Duration(random.IntN(4)) * 5 * time.Second,
	}
	maxCost := 1 + random.Int64N(config.Capacity+2) // up to more than the capacity
	m, l := &model{config: config}, NewLimiter(config)
	var all []*acquiring // as m.all
	check := func(when string) {
		t.Helper()
		synctest.Wait()
		heldByFlow := map[Flow]int64{}
		for i, a := range all {
			got := a.state()
			if want := m.all[i].state; got != want {
				t.Fatalf("%+v, %s: request %d of flow %d: got state %s, want %s", config, when, i, a.flow[0], got, want)
			}
			if got == holds {
				heldByFlow[a.flow] += a.grant.cost
			}
		}
		for flow, held := range heldByFlow {
			if held > m.perFlow() {
				t.Fatalf("%s: flow %d holds %d, want at most %d", when, flow[0], held, m.perFlow())
			}
		}
		s := l.Stats()
		if s.InUse > config.Capacity {
			t.Fatalf("%+v, %s: %d are in use", config, when, s.InUse)
		}
		if s.InUse != m.held(anyFlow) || s.Waiting != m.waiting(anyFlow) {
			t.Fatalf("%+v, %s: got %+v, want %d in use and %d waiting", config, when, s, m.held(anyFlow), m.waiting(anyFlow))
		}
	}
	// randomIn returns a random request in a state, of the model and of the limiter.
	randomIn := func(state string) (*modelRequest, *acquiring) {
		some := m.inState(state, anyFlow)
		if len(some) == 0 {
			return nil, nil
		}
		r := some[random.IntN(len(some))]
		return r, all[slices.Index(m.all, r)]
	}
	release := func(r *modelRequest, a *acquiring) {
		m.setState(r, released)
		a.grant.Release()
		a.grant.Release() // only the first counts
	}
	for i := range 80 {
		time.Sleep(time.Millisecond) // so that no two waits end at once
		m.expire()
		synctest.Wait()
		modelHolding, holding := randomIn(holds)
		modelWaiting, waiting := randomIn(waits)
		modelPaused, pausing := randomIn(paused)
		switch n := random.IntN(14); {
		case n < 5: // a new request
			flow, cost := byte(1+random.IntN(4)), random.Int64N(maxCost+1)
			m.acquire(flow, cost)
			all = append(all, acquire(t, l, flow, cost))
		case n < 8 && holding != nil:
			release(modelHolding, holding)
		case n < 9 && waiting != nil: // a caller leaves
			m.setState(modelWaiting, context.Canceled.Error())
			waiting.leave()
		case n < 11 && holding != nil:
			m.pause(modelHolding)
			holding.grant.Pause()
		case n < 13 && pausing != nil: // a paused request resumes, as the last to wait
			at := slices.Index(m.all, modelPaused)
			m.all = append(slices.Delete(m.all, at, at+1), modelPaused)
			all = append(slices.Delete(all, at, at+1), pausing)
			m.wait(modelPaused)
			pausing.start(t, func(ctx context.Context) { pausing.err = pausing.grant.Resume(ctx) })
		case n == 13 && pausing != nil:
			release(modelPaused, pausing)
		case waiting != nil: // until the next wait ends
			time.Sleep(time.Until(m.inState(waits, anyFlow)[0].until))
			m.expire()
		}
		check(fmt.Sprintf("step %d", i))
	}
	for _, state := range []string{holds, paused} {
		for r, a := randomIn(state); r != nil; r, a = randomIn(state) {
			release(r, a)
			check("the end")
		}
	}
	wantIdle(t, l)
}

// TestLongRunningRequestsDoNotWait: long-running requests beyond their total, or beyond half of it for one flow, are refused at
// once. Short requests have no bound if none is given.
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
	} {
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
	for range 1000 { // no bound
		if _, err := l.Short.Acquire(t.Context(), Flow{1}, 1); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLimiterRace: concurrent callers never hold more than the capacity. (Run it with the race detector.)
func TestLimiterRace(t *testing.T) {
	const capacity = 3
	l := NewLimiter(LimiterConfig{Capacity: capacity, MaxWaiting: 100, MaxWait: time.Millisecond})
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			for range 200 {
				ctx, leave := context.WithTimeout(t.Context(), time.Duration(random.IntN(1000))*time.Microsecond)
				grant, err := l.Acquire(ctx, Flow{byte(i % 5)}, random.Int64N(3))
				if err == nil && l.Stats().InUse > capacity {
					t.Errorf("more than %d are in use", capacity)
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
	const all, size = 128 << 20, 3 << 20
	l := New(Config{Bytes: all})
	kept := int64(0)
	for flow := range byte(3) {
		for {
			if _, ok := l.TryAcquireBody(Flow{flow}, size); !ok {
				break
			}
			kept += size
		}
	}
	if kept < all/4 || kept > all/2 {
		t.Errorf("bodies of %d bytes are kept, want %d to %d", kept, all/4, all/2)
	}
	if _, err := l.AcquireAnswer(t.Context(), Flow{9}, all/2); err != nil {
		t.Errorf("an answer of half of all bytes got error %v", err)
	}
}
