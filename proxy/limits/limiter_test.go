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

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/expect"
)

func newLimiter(tb testing.TB, config LimiterConfig) *Limiter {
	tb.Helper()
	l, err := NewLimiter(config)
	expect.NoError(tb, err)
	return l
}

// wantIdle wants nothing to be held and nobody to wait.
func wantIdle(t *testing.T, l *Limiter) {
	t.Helper()
	if s := l.Stats(); s.InUse != 0 || s.Waiting != 0 || s.Flows != 0 || l.inNeed.Len() != 0 {
		t.Errorf("not given back: %+v", s)
	}
}

// asked is a request to a [Limiter], in a goroutine of its own.
type asked struct {
	name  string
	of    Flow
	cost  int64
	leave context.CancelFunc
	over  chan struct{} // closed when Acquire has returned
	grant Grant
	err   error
}

func ask(t *testing.T, l *Limiter, name string, of byte, cost int64) *asked {
	ctx, leave := context.WithCancel(t.Context())
	a := &asked{name: name, of: Flow{of}, cost: cost, leave: leave, over: make(chan struct{})}
	go func() {
		a.grant, a.err = l.Acquire(ctx, a.of, a.cost)
		close(a.over)
	}()
	synctest.Wait()
	return a
}

func (a *asked) isOver() bool {
	select {
	case <-a.over:
		return true
	default:
		return false
	}
}

// model is what a [Limiter] does, said in the plainest way: a list of those who wait and one of those
// who hold, searched from the beginning each time.
type model struct {
	config  LimiterConfig
	waiting []*modelRequest // in the order of arrival
	holding []*modelRequest
	refused map[string]Overload
}

type modelRequest struct {
	name  string
	of    byte
	cost  int64
	until time.Time
}

func (m *model) perFlow() int64 { return (m.config.Capacity + 1) / 2 }

func (m *model) held(of byte) (sum int64) {
	for _, r := range m.holding {
		if of == 0 || r.of == of {
			sum += r.cost
		}
	}
	return sum
}

// next is the request that is granted next: the oldest one of the neediest flow that may hold it.
func (m *model) next() (next *modelRequest) {
	var heads []*modelRequest
	for _, r := range m.waiting {
		if !slices.ContainsFunc(heads, func(h *modelRequest) bool { return h.of == r.of }) {
			heads = append(heads, r)
		}
	}
	slices.SortStableFunc(heads, func(a, b *modelRequest) int { return int(m.held(a.of) - m.held(b.of)) })
	for _, r := range heads {
		if m.held(r.of)+r.cost <= m.perFlow() {
			return r
		}
	}
	return nil
}

func (m *model) grant() {
	for r := m.next(); r != nil && m.held(0)+r.cost <= m.config.Capacity; r = m.next() {
		m.leave(r.name)
		m.holding = append(m.holding, r)
	}
}

func (m *model) leave(name string) {
	m.waiting = slices.DeleteFunc(m.waiting, func(w *modelRequest) bool { return w.name == name })
}

func (m *model) release(name string) {
	m.holding = slices.DeleteFunc(m.holding, func(h *modelRequest) bool { return h.name == name })
}

func (m *model) ask(name string, of byte, cost int64) {
	r := &modelRequest{name: name, of: of, cost: min(max(cost, 1), m.perFlow()), until: time.Now().Add(m.config.MaxWait)}
	m.waiting = append(m.waiting, r)
	m.grant()
	mine := 0
	for _, w := range m.waiting {
		if w.of == of {
			mine++
		}
	}
	switch {
	case !slices.Contains(m.waiting, r):
		return
	case m.config.MaxWait == 0:
		m.refused[name] = OverloadTimeOut
	case mine > max(1, m.config.MaxWaiting/flowsWaiting):
		m.refused[name] = OverloadCallerQueueFull
	case len(m.waiting) > m.config.MaxWaiting:
		m.refused[name] = OverloadQueueFull
	default:
		return
	}
	m.leave(name)
}

// expire has requests leave that have waited for too long.
func (m *model) expire() {
	for len(m.waiting) > 0 && !m.waiting[0].until.After(time.Now()) {
		m.refused[m.waiting[0].name] = OverloadTimeOut
		m.leave(m.waiting[0].name)
		m.grant()
	}
}

func names(requests []*modelRequest) []string {
	all := []string{}
	for _, r := range requests {
		all = append(all, r.name)
	}
	slices.Sort(all)
	return all
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
	m := &model{config: config, refused: map[string]Overload{}}
	l := newLimiter(t, config)
	all := map[string]*asked{}
	check := func(what string) {
		t.Helper()
		synctest.Wait()
		var holding, waiting []*modelRequest
		flows := map[Flow]int64{}
		for name, a := range all {
			switch r := (&modelRequest{name: name}); {
			case !a.isOver():
				waiting = append(waiting, r)
			case a.err == nil && a.grant.limiter != nil:
				holding = append(holding, r)
				flows[a.of] += a.grant.cost
			case a.err != nil && !errors.Is(a.err, context.Canceled):
				if got, is := errors.AsType[Overload](a.err); !is || got != m.refused[name] {
					t.Fatalf("%+v, %s: %s got %v, the model %q", config, what, name, a.err, m.refused[name])
				}
			}
		}
		if diff := cmp.Diff([2][]string{names(m.holding), names(m.waiting)}, [2][]string{names(holding), names(waiting)}); diff != "" {
			t.Fatalf("%+v, %s (-model +limiter):\n%s", config, what, diff)
		}
		for of, held := range flows {
			if held > m.perFlow() {
				t.Fatalf("%s: flow %d holds %d", what, of[0], held)
			}
		}
		if s := l.Stats(); s.InUse != m.held(0) || s.InUse > config.Capacity || s.Waiting != len(m.waiting) {
			t.Fatalf("%+v, %s: %+v", config, what, s)
		}
	}
	for i := range 80 {
		what := fmt.Sprintf("step %d", i)
		time.Sleep(time.Millisecond) // no two deadlines are passed at once, so their order is known
		m.expire()
		synctest.Wait()
		switch n := random.IntN(10); {
		case n < 5:
			of, cost := byte(1+random.IntN(4)), random.Int64N(maxCost+1)
			name := fmt.Sprintf("%d/%d", of, i)
			m.ask(name, of, cost)
			all[name] = ask(t, l, name, of, cost)
		case n < 8 && len(m.holding) > 0:
			name := m.holding[random.IntN(len(m.holding))].name
			m.release(name)
			m.grant()
			all[name].grant.Release()
			all[name].grant.Release() // only the first counts
		case n < 9 && len(m.waiting) > 0:
			name := m.waiting[random.IntN(len(m.waiting))].name
			m.leave(name)
			m.grant()
			all[name].leave()
		default:
			if len(m.waiting) > 0 {
				time.Sleep(time.Until(m.waiting[0].until))
				m.expire()
			}
		}
		check(what)
	}
	for len(m.holding) > 0 || len(m.waiting) > 0 {
		for _, r := range slices.Clone(m.holding) {
			m.release(r.name)
			all[r.name].grant.Release()
		}
		m.grant()
		check("the end")
	}
	wantIdle(t, l)
}

// TestLongRunningRequestsDoNotWait: they have a total, and one flow half of it.
func TestLongRunningRequestsDoNotWait(t *testing.T) {
	l, err := New(Config{LongRunning: 5})
	expect.NoError(t, err)
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
		if _, err := l.Requests.Acquire(t.Context(), Flow{1}, 1); err != nil {
			t.Fatal(err)
		}
	}
	for _, cfg := range []Config{{Requests: -1}, {LongRunning: -1}, {Bytes: -1}, {Requests: 1, Wait: -1}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
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
	l, err := New(Config{Bytes: all})
	expect.NoError(t, err)
	kept := int64(0)
	for of := range byte(3) {
		for size, ok := int64(3<<20), true; ok; kept += size {
			if _, ok = l.Body(Flow{of}, size); !ok {
				break
			}
		}
	}
	if kept < all/4 || kept > all/2 {
		t.Errorf("bodies of %d of %d bytes are kept", kept, all)
	}
	if _, err := l.Answer(t.Context(), Flow{9}, all/2); err != nil {
		t.Errorf("an answer of half of all bytes: %v", err)
	}
}
