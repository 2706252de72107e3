package inflight

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/test/expect"
)

// splitReport is what limiterScript reports, one by one.
func splitReport(report string) []string {
	if report == "" {
		return nil
	}
	return strings.Split(report, ", ")
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}

// limiterModel is what a [Limiter] does, said in the plainest way: a list of those who wait and
// one of those who hold, searched from the beginning each time.
type limiterModel struct {
	config  LimiterConfig
	waiting []*modelRequest // in the order of arrival
	holding []*modelRequest
	done    []string // what has happened, as limiterScript reports it
}

type modelRequest struct {
	caller, name string
	cost, passed int64
	until        time.Time
}

func (m *limiterModel) held(caller string) (sum int64) {
	for _, r := range m.holding {
		if caller == "" || r.caller == caller {
			sum += r.cost
		}
	}
	return sum
}

// heads are the oldest requests of each caller, those of the neediest callers first.
func (m *limiterModel) heads() (heads []*modelRequest) {
	for _, r := range m.waiting {
		if !slices.ContainsFunc(heads, func(h *modelRequest) bool { return h.caller == r.caller }) {
			heads = append(heads, r)
		}
	}
	slices.SortStableFunc(heads, func(a, b *modelRequest) int { return int(m.held(a.caller) - m.held(b.caller)) })
	return heads
}

func (m *limiterModel) grant() {
	heads := m.heads()
	for i, r := range heads {
		if m.held("")+r.cost > m.config.Capacity {
			continue
		}
		if slices.ContainsFunc(heads[:i], func(h *modelRequest) bool { return h.passed+r.cost > h.cost }) {
			continue
		}
		for _, h := range heads[:i] {
			h.passed += r.cost
		}
		m.leave(r)
		m.holding = append(m.holding, r)
		m.done = append(m.done, r.name)
		m.grant()
		return
	}
}

func (m *limiterModel) leave(r *modelRequest) {
	m.waiting = slices.DeleteFunc(m.waiting, func(w *modelRequest) bool { return w == r })
}

func (m *limiterModel) ask(caller, name string, cost int64) {
	r := &modelRequest{
		caller: caller, name: name, cost: min(max(cost, 1), m.config.Capacity), until: proxytest.WallClock().Add(m.config.MaxWait),
	}
	m.waiting = append(m.waiting, r)
	m.grant()
	mine := 0
	for _, w := range m.waiting {
		if w.caller == caller {
			mine++
		}
	}
	switch {
	case !slices.Contains(m.waiting, r):
	case mine > m.config.MaxWaitingPerCaller:
		m.leave(r)
		m.done = append(m.done, name+" caller-queue-full")
	case len(m.waiting) > m.config.MaxWaiting:
		m.leave(r)
		m.done = append(m.done, name+" queue-full")
	}
}

// expire has requests leave that have waited for too long, the oldest first.
func (m *limiterModel) expire() {
	for len(m.waiting) > 0 && !m.waiting[0].until.After(proxytest.WallClock()) {
		m.done = append(m.done, m.waiting[0].name+" time-out")
		m.leave(m.waiting[0])
		m.grant()
	}
}

// TestLimiterAgainstModel plays random histories. Beside the model's own word it checks what must
// hold whatever the model says: the capacity, and that nobody waits for what is free.
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
		Capacity:            1 + random.Int64N(12),
		MaxWaiting:          1 + random.IntN(12),
		MaxWaitingPerCaller: 1 + random.IntN(5),
		MaxWait:             10 * time.Second,
	}
	maxCost := 1 + random.Int64N(config.Capacity+2) // of 1, all fit everywhere
	m := &limiterModel{config: config}
	s := &limiterScript{limiter: newLimiter(t, config)}
	var history []string
	step := func(what string) {
		history = append(history, what)
		got := s.play(t, what)
		// Several time-outs at once are reported in another order.
		want := m.done
		m.done = nil
		if diff := cmp.Diff(sorted(want), sorted(splitReport(got))); diff != "" {
			t.Fatalf("%+v\n%q (-model +limiter):\n%s", config, history, diff)
		}
		stats := s.limiter.Stats()
		if stats.InUse != m.held("") || stats.InUse > config.Capacity || stats.Waiting != len(m.waiting) {
			t.Fatalf("%+v\n%q: %+v", config, history, stats)
		}
		if heads := m.heads(); len(heads) > 0 && heads[0].cost <= config.Capacity-stats.InUse {
			t.Fatalf("%+v\n%q: %s waits for what is free", config, history, heads[0].name)
		}
	}
	for i := range 80 {
		switch n := random.IntN(10); {
		case n < 5:
			caller := string(rune('a' + random.IntN(4)))
			name, cost := fmt.Sprintf("%s%d", caller, i), random.Int64N(maxCost+1)
			m.ask(caller, name, cost)
			step(fmt.Sprintf("%s+%d", name, cost))
		case n < 8 && len(m.holding) > 0:
			j := random.IntN(len(m.holding))
			name := m.holding[j].name
			m.holding = slices.Delete(m.holding, j, j+1)
			m.grant()
			step(name + "-")
		case n < 9 && len(m.waiting) > 0:
			r := m.waiting[random.IntN(len(m.waiting))]
			m.leave(r)
			m.done = append(m.done, r.name+" context canceled")
			m.grant()
			step(r.name + "x")
		default:
			// No two deadlines are passed at once, so their order is known.
			time.Sleep(time.Millisecond)
			m.expire()
			d := time.Second
			if len(m.waiting) > 0 {
				d = min(d, m.waiting[0].until.Sub(proxytest.WallClock()))
			}
			time.Sleep(d - time.Nanosecond)
			synctest.Wait()
			time.Sleep(time.Nanosecond)
			m.expire()
			step("0s")
		}
	}
	for len(m.holding) > 0 {
		name := m.holding[0].name
		m.holding = m.holding[1:]
		m.grant()
		step(name + "-")
	}
	assertIdle(t, s.limiter)
}

// TestLimiterIsMaxMinFair has callers that always want more than there is. Whatever each costs
// the others, they come to hold the same.
func TestLimiterIsMaxMinFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const capacity = 12
		s := &limiterScript{limiter: newLimiter(t, LimiterConfig{
			Capacity: capacity, MaxWaiting: 1000, MaxWaitingPerCaller: 100, MaxWait: time.Hour,
		})}
		held := map[string]int{}
		count := func(report string) {
			for _, name := range splitReport(report) {
				held[name[:1]]++
			}
		}
		// a takes all, and asks for more than all others together.
		for i := range 60 {
			count(s.play(t, fmt.Sprintf("a%d+1", i)))
		}
		for i := range 20 {
			count(s.play(t, fmt.Sprintf("b%d+1", i)))
			count(s.play(t, fmt.Sprintf("c%d+1", i)))
		}
		count(s.play(t, "d0+1")) // and one that wants less than its share
		for i := range capacity {
			held["a"]--
			count(s.play(t, fmt.Sprintf("a%d-", i)))
		}
		// d has all it wants; the other 11 are shared, and the odd ones go to who came first.
		expect.Same(t, map[string]int{"a": 4, "b": 4, "c": 3, "d": 1}, held)
		for _, r := range s.requests {
			r.cancel()
		}
		synctest.Wait()
		for _, r := range s.requests {
			if r.done.Load() && r.err == nil {
				r.grant.Release()
			}
		}
		assertIdle(t, s.limiter)
	})
}
