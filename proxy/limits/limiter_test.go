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

func newLimiter(tb testing.TB, config LimiterConfig) *Limiter {
	tb.Helper()
	return NewLimiter(config)
}

// wantIdle wants nothing to be held and nobody to wait.
func wantIdle(t *testing.T, l *Limiter) {
	t.Helper()
	if s := l.Stats(); s.InUse != 0 || s.Waiting != 0 || len(l.flows) != 0 || l.waitingFlows.Len() != 0 {
		t.Errorf("not given back: %+v", s)
	}
}

// asked is a request to a [Limiter], in a goroutine of its own.
type asked struct {
	of    Flow
	leave context.CancelFunc
	over  chan struct{} // closed when Acquire has returned
	grant Grant
	err   error
}

func ask(t *testing.T, l *Limiter, of byte, cost int64) *asked {
	a := &asked{of: Flow{of}}
	a.wait(t, func(ctx context.Context) { a.grant, a.err = l.Acquire(ctx, a.of, cost) })
	return a
}

// wait has a request wait for a grant until it leaves.
func (a *asked) wait(t *testing.T, acquire func(context.Context)) {
	ctx, leave := context.WithCancel(t.Context())
	a.leave, a.over = leave, make(chan struct{})
	go func() {
		acquire(ctx)
		close(a.over)
	}()
	synctest.Wait()
}

// What becomes of a request. A refused one is in its error.
const (
	waits    = "waits"
	holds    = "holds"
	paused   = "paused"
	released = "released"
)

func (a *asked) state() string {
	select {
	case <-a.over:
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

// model is what a [Limiter] does, said in the plainest way: a list of requests, searched from the beginning
// each time.
type model struct {
	config LimiterConfig
	all    []*modelRequest // in the order of arrival
}

type modelRequest struct {
	of    byte
	cost  int64
	until time.Time
	state string
}

// in returns the requests of that state, and of that flow unless it is 0.
func (m *model) in(state string, of byte) (all []*modelRequest) {
	for _, r := range m.all {
		if r.state == state && (of == 0 || r.of == of) {
			all = append(all, r)
		}
	}
	return all
}

// held is what a flow holds, or all do.
func (m *model) held(of byte) (sum int64) {
	for _, r := range m.in(holds, of) {
		sum += r.cost
	}
	return sum
}

func (m *model) perFlow() int64 { return (m.config.Capacity + 1) / 2 }

// next is the request that is granted next: the oldest one of the neediest flow that may hold it.
func (m *model) next() (next *modelRequest) {
	for _, r := range m.in(waits, 0) {
		oldest := r == m.in(waits, r.of)[0]
		if oldest && m.held(r.of)+r.cost <= m.perFlow() && (next == nil || m.held(r.of) < m.held(next.of)) {
			next = r
		}
	}
	return next
}

// become changes what a request does, and grants what can be granted then.
func (m *model) become(r *modelRequest, state string) {
	r.state = state
	for next := m.next(); next != nil && m.held(0)+next.cost <= m.config.Capacity; next = m.next() {
		next.state = holds
	}
}

func (m *model) ask(of byte, cost int64) {
	r := &modelRequest{of: of, cost: min(max(cost, 1), m.perFlow())}
	m.all = append(m.all, r)
	m.wait(r)
	switch {
	case r.state != waits:
	case m.waiting(of) > max(1, m.config.MaxWaiting/flowsToFillQueue):
		r.state = OverloadCallerQueueFull.Error()
	case m.waiting(0) > m.config.MaxWaiting:
		r.state = OverloadQueueFull.Error()
	}
}

// wait has the last request wait, if it may wait at all.
func (m *model) wait(r *modelRequest) {
	r.until = time.Now().Add(m.config.MaxWait)
	if m.become(r, waits); r.state == waits && m.config.MaxWait == 0 {
		r.state = OverloadTimeOut.Error()
	}
}

// waiting is how many requests of a flow, or of all, wait for anything.
func (m *model) waiting(of byte) int { return len(m.in(waits, of)) + len(m.in(paused, of)) }

// pause has a request give back what it holds, if there is a place to wait.
func (m *model) pause(r *modelRequest) {
	if m.waiting(0) < m.config.MaxWaiting && m.waiting(r.of) < max(1, m.config.MaxWaiting/flowsToFillQueue) {
		m.become(r, paused)
	}
}

// expire has requests leave that have waited for too long.
func (m *model) expire() {
	for waiting := m.in(waits, 0); len(waiting) > 0 && !waiting[0].until.After(time.Now()); waiting = m.in(waits, 0) {
		m.become(waiting[0], OverloadTimeOut.Error())
	}
}

// TestLimiterAgainstModel plays random histories. Beside the model's own word it checks what must
// hold whatever the model says: the capacity, and the half of one flow.
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
	config := LimiterConfig{Capacity: 1 + random.Int64N(12), MaxWaiting: random.IntN(40), MaxWait: time.Duration(random.IntN(4)) * 5 * time.Second}
	maxCost := 1 + random.Int64N(config.Capacity+2) // of 1, all fit everywhere
	m, l := &model{config: config}, newLimiter(t, config)
	var all []*asked // as m.all
	check := func(what string) {
		t.Helper()
		synctest.Wait()
		flows := map[Flow]int64{}
		for i, a := range all {
			got := a.state()
			if want := m.all[i].state; got != want {
				t.Fatalf("%+v, %s: request %d of flow %d: %s, by the model %s", config, what, i, a.of[0], got, want)
			}
			if got == holds {
				flows[a.of] += a.grant.cost
			}
		}
		for of, held := range flows {
			if held > m.perFlow() {
				t.Fatalf("%s: flow %d holds %d", what, of[0], held)
			}
		}
		if s := l.Stats(); s.InUse != m.held(0) || s.InUse > config.Capacity || s.Waiting != m.waiting(0) {
			t.Fatalf("%+v, %s: %+v", config, what, s)
		}
	}
	// one returns a random request of that state, for the model and the limiter.
	one := func(state string) (*modelRequest, *asked) {
		some := m.in(state, 0)
		if len(some) == 0 {
			return nil, nil
		}
		r := some[random.IntN(len(some))]
		return r, all[slices.Index(m.all, r)]
	}
	release := func(r *modelRequest, a *asked) {
		m.become(r, released)
		a.grant.Release()
		a.grant.Release() // only the first counts
	}
	for i := range 80 {
		time.Sleep(time.Millisecond) // no two deadlines are passed at once, so their order is known
		m.expire()
		synctest.Wait()
		holding, held := one(holds)
		waiting, awaited := one(waits)
		pausing, away := one(paused)
		switch n := random.IntN(14); {
		case n < 5:
			flow, cost := byte(1+random.IntN(4)), random.Int64N(maxCost+1)
			m.ask(flow, cost)
			all = append(all, ask(t, l, flow, cost))
		case n < 8 && holding != nil:
			release(holding, held)
		case n < 9 && waiting != nil:
			m.become(waiting, context.Canceled.Error())
			awaited.leave()
		case n < 11 && holding != nil:
			m.pause(holding)
			held.grant.Pause()
		case n < 13 && pausing != nil: // it is the last one now
			at := slices.Index(m.all, pausing)
			m.all, all = append(slices.Delete(m.all, at, at+1), pausing), append(slices.Delete(all, at, at+1), away)
			m.wait(pausing)
			away.wait(t, func(ctx context.Context) { away.err = away.grant.Resume(ctx) })
		case n == 13 && pausing != nil:
			release(pausing, away)
		case waiting != nil:
			time.Sleep(time.Until(m.in(waits, 0)[0].until))
			m.expire()
		}
		check(fmt.Sprintf("step %d", i))
	}
	for _, state := range []string{holds, paused} {
		for r, a := one(state); r != nil; r, a = one(state) {
			release(r, a)
			check("the end")
		}
	}
	wantIdle(t, l)
}

// TestLongRunningRequestsDoNotWait: they have a total, and one flow half of it.
func TestLongRunningRequestsDoNotWait(t *testing.T) {
	l := New(Config{LongRunning: 5})
	var grants []Grant
	for _, want := range []struct {
		of  byte
		err error
	}{{1, nil}, {1, nil}, {1, nil}, {1, OverloadTimeOut}, {2, nil}, {2, nil}, {3, OverloadTimeOut}} {
		grant, err := l.LongRunning.Acquire(t.Context(), Flow{want.of}, 1)
		if !errors.Is(err, want.err) {
			t.Errorf("flow %d: %v, want %v", want.of, err, want.err)
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

// TestLimiterRace has everything happen at once. Run it with the race detector.
func TestLimiterRace(t *testing.T) {
	l := newLimiter(t, LimiterConfig{Capacity: 3, MaxWaiting: 100, MaxWait: time.Millisecond})
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			for range 200 {
				ctx, leave := context.WithTimeout(t.Context(), time.Duration(random.IntN(1000))*time.Microsecond)
				grant, err := l.Acquire(ctx, Flow{byte(i % 5)}, random.Int64N(3))
				if err == nil && l.Stats().InUse > 3 {
					t.Error("more is held than there is")
				}
				grant.Release()
				leave()
			}
		})
	}
	all.Wait()
	wantIdle(t, l)
}

// TestBodiesLeaveRoom: callers whose bodies do not come keep no large answer from anybody else.
func TestBodiesLeaveRoom(t *testing.T) {
	const all = 128 << 20
	l := New(Config{Bytes: all})
	kept := int64(0)
	for of := range byte(3) {
		for size, ok := int64(3<<20), true; ok; kept += size {
			if _, ok = l.TryAcquireBody(Flow{of}, size); !ok {
				break
			}
		}
	}
	if kept < all/4 || kept > all/2 {
		t.Errorf("bodies of %d of %d bytes are kept", kept, all)
	}
	if _, err := l.AcquireAnswer(t.Context(), Flow{9}, all/2); err != nil {
		t.Errorf("an answer of half of all bytes: %v", err)
	}
}
