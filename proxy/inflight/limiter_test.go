package inflight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/expect"
)

func newLimiter(tb testing.TB, config LimiterConfig) *Limiter[string] {
	tb.Helper()
	l, err := NewLimiter[string](config)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func TestLimiterRefusesNegativeBounds(t *testing.T) {
	for _, config := range []LimiterConfig{{Capacity: -1}, {MaxWaiting: -1}, {MaxWaitingPerCaller: -1}, {MaxWait: -1}} {
		if _, err := NewLimiter[string](config); err == nil {
			t.Errorf("%+v was taken", config)
		}
	}
}

// limiterScript plays a history in a synctest bubble. Each step is
//
//	a1+3    caller a asks for 3, and calls that request 1
//	a1-     it is given back
//	a1x     its context ends
//	2s      two seconds go by
//
// and is followed by what it caused: requests granted, refused or ended, in the order in which
// they were asked for.
type limiterScript struct {
	limiter  *Limiter[string]
	requests []*limiterRequest
}

type limiterRequest struct {
	name     string
	cancel   context.CancelFunc
	grant    Grant[string]
	err      error
	done     atomic.Bool
	reported bool
}

func (s *limiterScript) play(t *testing.T, step string) (happened string) {
	t.Helper()
	var caller byte
	var number, cost int
	switch {
	case strings.Contains(step, "+"):
		if _, err := fmt.Sscanf(step, "%c%d+%d", &caller, &number, &cost); err != nil {
			t.Fatal(step, err)
		}
		name, _, _ := strings.Cut(step, "+")
		s.ask(t, string(caller), name, int64(cost))
	case strings.HasSuffix(step, "-"):
		s.find(t, strings.TrimSuffix(step, "-")).grant.Release()
	case strings.HasSuffix(step, "x"):
		s.find(t, strings.TrimSuffix(step, "x")).cancel()
	default:
		d, err := time.ParseDuration(step)
		if err != nil {
			t.Fatal(step, err)
		}
		time.Sleep(d)
	}
	synctest.Wait()
	return s.report()
}

func (s *limiterScript) ask(t *testing.T, caller, name string, cost int64) {
	ctx, cancel := context.WithCancel(t.Context())
	r := &limiterRequest{name: name, cancel: cancel}
	s.requests = append(s.requests, r)
	go func() {
		r.grant, r.err = s.limiter.Acquire(ctx, caller, cost)
		r.done.Store(true)
	}()
}

func (s *limiterScript) find(t *testing.T, name string) *limiterRequest {
	t.Helper()
	for _, r := range s.requests {
		if r.name == name {
			return r
		}
	}
	t.Fatalf("there is no request %s", name)
	return nil
}

// report tells what has happened since the last report.
func (s *limiterScript) report() string {
	var news []string
	for _, r := range s.requests {
		if r.reported || !r.done.Load() {
			continue
		}
		r.reported = true
		var overload Overload
		switch {
		case r.err == nil:
			news = append(news, r.name)
		case errors.As(r.err, &overload):
			news = append(news, r.name+" "+string(overload))
		default:
			news = append(news, r.name+" "+r.err.Error())
		}
	}
	return strings.Join(news, ", ")
}

func TestLimiter(t *testing.T) {
	type steps [][2]string // what is done, and what happens
	queues := LimiterConfig{MaxWaiting: 10, MaxWaitingPerCaller: 5, MaxWait: 10 * time.Second}
	with := func(capacity int64) LimiterConfig {
		c := queues
		c.Capacity = capacity
		return c
	}
	tests := map[string]struct {
		config LimiterConfig
		steps  steps
	}{
		"one caller may use everything": {
			with(3),
			steps{
				{"a1+1", "a1"}, {"a2+1", "a2"}, {"a3+1", "a3"}, {"a4+1", ""}, {"a1-", "a4"}, {"a2-", ""}, {"a3-", ""}, {"a4-", ""},
			},
		},
		"but gets no more while others have less": {
			with(4),
			steps{
				{"a1+1", "a1"},
				{"a2+1", "a2"},
				{"a3+1", "a3"},
				{"a4+1", "a4"},
				{"a5+1", ""},
				{"b1+1", ""},
				{"b2+1", ""},
				{"a1-", "b1"},
				{"a2-", "b2"},
				{"b3+1", ""},
				// They hold two each; a's request came first.
				{"a3-", "a5"},
				{"a4-", "b3"},
				{"a5-", ""},
				{"b1-", ""},
				{"b2-", ""},
				{"b3-", ""},
			},
		},
		"the least first, whoever came first": {
			with(6),
			steps{
				{"a1+3", "a1"},
				{"b1+2", "b1"},
				{"c1+1", "c1"},
				{"a2+1", ""},
				{"b2+1", ""},
				{"c2+1", ""},
				{"d2+1", ""},
				{"a1-", "a2, c2, d2"}, // d and a hold nothing, then c comes before b
				{"b1-", "b2"},
				{"a2-", ""},
				{"b2-", ""},
				{"c1-", ""},
				{"c2-", ""},
				{"d2-", ""},
			},
		},
		"first come, first served for equals and within a caller": {
			with(1),
			steps{
				{"a1+1", "a1"},
				{"b1+1", ""},
				{"c1+1", ""},
				{"b2+1", ""},
				{"a2+1", ""},
				{"a1-", "b1"},
				{"b1-", "c1"},
				{"c1-", "b2"},
				{"b2-", "a2"},
				{"a2-", ""},
			},
		},
		"too large runs alone": {
			with(10),
			steps{
				{"a1+1", "a1"}, {"b1+1000", ""}, {"a1-", "b1"}, {"c1+1", ""}, {"b1-", "c1"}, {"c1-", ""},
			},
		},
		"nothing costs one": {with(1), steps{{"a1+0", "a1"}, {"a2+0", ""}, {"a1-", "a2"}, {"a2-", ""}}},
		"no bound":          {with(0), steps{{"a1+9000000000000000000", "a1"}, {"b1+1", "b1"}, {"a1-", ""}, {"b1-", ""}}},
		"a large request is overtaken by its own cost and no more": {
			with(10),
			steps{
				{"a1+7", "a1"},
				{"b1+4", ""},
				{"c1+2", "c1"},
				{"c1-", ""},
				{"d1+2", "d1"},
				{"d1-", ""},
				// Four have passed b; now all others wait, though three are free.
				{"e1+1", ""},
				{"a1-", "b1, e1"},
				{"b1-", ""},
				{"e1-", ""},
			},
		},
		"what would be too much of overtaking does not hold up less": {
			with(10),
			steps{
				{"a1+6", "a1"},
				{"b1+5", ""},
				{"c1+4", "c1"},
				{"c1-", ""},
				{"d1+4", ""}, // one is left of b's five
				{"e1+1", "e1"},
				{"e1-", ""},
				{"a1-", "b1, d1"},
				{"b1-", ""},
				{"d1-", ""},
			},
		},
		"an endless stream of others does not keep out one that holds something": {
			with(4),
			steps{
				{"a1+2", "a1"},
				{"a2+3", ""},
				{"b1+1", "b1"},
				{"c1+1", "c1"},
				{"b2+1", ""},
				{"b1-", "b2"},
				{"c2+1", ""},
				{"c1-", "c2"},
				{"a1-", ""}, // now a holds nothing, and came first
				{"d1+1", "d1"},
				{"d1-", ""},
				{"d2+1", "d2"},
				{"d2-", ""},
				{"d3+1", "d3"},
				{"d3-", ""},
				{"d4+1", ""}, // three have passed a2
				{"b2-", "a2"},
				{"c2-", "d4"},
				{"a2-", ""},
				{"d4-", ""},
			},
		},
		"who leaves lets others pass": {
			with(4),
			steps{
				{"a1+3", "a1"},
				{"b1+1", "b1"},
				{"c1+4", ""},
				{"d1+2", ""},
				{"d2+1", ""},
				{"b1-", ""}, // d's oldest does not fit
				{"d1x", "d1 context canceled, d2"},
				{"c1x", "c1 context canceled"},
				{"a1-", ""},
				{"d2-", ""},
			},
		},
		"a queue for each caller": {
			LimiterConfig{Capacity: 1, MaxWaiting: 3, MaxWaitingPerCaller: 2, MaxWait: time.Hour},
			steps{
				{"a1+1", "a1"},
				{"a2+1", ""},
				{"a3+1", ""},
				{"a4+1", "a4 caller-queue-full"},
				{"b1+1", ""},
				{"b2+1", "b2 queue-full"},
				{"a3x", "a3 context canceled"},
				{"b3+1", ""},
				{"a1-", "a2"}, // nobody holds anything, a came first
				{"a2-", "b1"},
				{"b1-", "b3"},
				{"b3-", ""},
			},
		},
		"a full queue does not keep out what need not wait": {
			LimiterConfig{Capacity: 3, MaxWaiting: 1, MaxWaitingPerCaller: 1, MaxWait: time.Hour},
			steps{
				{"a1+1", "a1"}, {"a2+3", ""}, {"b1+2", "b1"}, {"c1+1", "c1 queue-full"}, {"a1-", ""}, {"b1-", "a2"}, {"a2-", ""},
			},
		},
		"nobody waits": {
			LimiterConfig{Capacity: 1, MaxWaiting: 1, MaxWaitingPerCaller: 1},
			steps{
				{"a1+1", "a1"}, {"b1+1", "b1 time-out"}, {"a1-", ""}, {"b2+1", "b2"}, {"b2-", ""},
			},
		},
		"no queue": {
			LimiterConfig{Capacity: 1, MaxWait: time.Hour},
			steps{
				{"a1+1", "a1"}, {"b1+1", "b1 caller-queue-full"}, {"a1-", ""}, {"b2+1", "b2"}, {"b2-", ""},
			},
		},
		"waited too long": {
			with(2),
			steps{
				{"a1+1", "a1"},
				{"b1+2", ""},
				{"c1+1", "c1"},
				{"2s", ""},
				{"d1+1", ""},
				{"a1-", "d1"},
				{"7s", ""},
				{"e1+1", ""},
				{"c1-", ""},
				{"999ms", ""},
				{"1ms", "b1 time-out, e1"}, // b held up e
				{"1h", ""},
				{"d1-", ""},
				{"e1-", ""},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &limiterScript{limiter: newLimiter(t, test.config)}
				for i, step := range test.steps {
					if got := s.play(t, step[0]); got != step[1] {
						t.Fatalf("step %d, %s: %q, want %q; %+v", i+1, step[0], got, step[1], s.limiter.Stats())
					}
				}
				assertIdle(t, s.limiter)
			})
		})
	}
}

// assertIdle checks that nothing is held, nobody waits, and nobody is remembered.
func assertIdle(t *testing.T, l *Limiter[string]) {
	t.Helper()
	got := l.Stats()
	if diff := cmp.Diff(LimiterStats{Refused: got.Refused}, got); diff != "" {
		t.Errorf("at the end (-want +got):\n%s", diff)
	}
	if n := l.inNeed.Len(); n != 0 {
		t.Errorf("at the end %d callers are in need", n)
	}
}

func TestLimiterStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := LimiterConfig{Capacity: 4, MaxWaiting: 2, MaxWaitingPerCaller: 1, MaxWait: time.Second}
		s := &limiterScript{limiter: newLimiter(t, config)}
		for _, step := range []string{"a1+3", "b1+3", "b2+1", "c1+3", "d1+3"} {
			s.play(t, step)
		}
		want := LimiterStats{
			InUse: 3, Waiting: 2, Callers: 3,
			Refused: map[Overload]uint64{OverloadCallerQueueFull: 1, OverloadQueueFull: 1},
		}
		expect.Same(t, want, s.limiter.Stats())
		s.play(t, "b1x")
		s.play(t, "1s")
		want = LimiterStats{
			InUse: 3, Callers: 1,
			Refused: map[Overload]uint64{OverloadCallerQueueFull: 1, OverloadQueueFull: 1, OverloadTimeOut: 1},
		}
		if diff := cmp.Diff(want, s.limiter.Stats()); diff != "" {
			t.Errorf("later (-want +got):\n%s", diff)
		}
	})
}

func TestGrantIsReleasedOnce(t *testing.T) {
	l := newLimiter(t, LimiterConfig{Capacity: 2})
	first, err := l.Acquire(t.Context(), "a", 1)
	expect.NoError(t, err)
	second, err := l.Acquire(t.Context(), "a", 1)
	expect.NoError(t, err)
	first.Release()
	first.Release()
	if got := l.Stats().InUse; got != 1 {
		t.Errorf("%d in use, want 1", got)
	}
	second.Release()
	var none Grant[string]
	none.Release()
	assertIdle(t, l)
}

func TestLimiterTakesNoEndedContext(t *testing.T) {
	l := newLimiter(t, LimiterConfig{Capacity: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Acquire(ctx, "a", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	assertIdle(t, l)
}

// TestLimiterRace has everything happen at once. Run it with the race detector.
func TestLimiterRace(t *testing.T) {
	const capacity = 20
	l := newLimiter(t, LimiterConfig{Capacity: capacity, MaxWaiting: 40, MaxWaitingPerCaller: 8, MaxWait: 20 * time.Millisecond})
	var inUse, granted atomic.Int64
	var wg sync.WaitGroup
	for worker := range 64 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(4) == 0 {
					go cancel()
				}
				cost := 1 + random.Int64N(capacity)
				grant, err := l.Acquire(ctx, fmt.Sprint(worker%7), cost)
				var overload Overload
				switch {
				case err == nil:
					granted.Add(1)
					if now := inUse.Add(cost); now > capacity {
						t.Errorf("%d in use", now)
					}
					if random.IntN(2) == 0 {
						runtime.Gosched()
					}
					inUse.Add(-cost)
					grant.Release()
				case !errors.As(err, &overload) && !errors.Is(err, context.Canceled):
					t.Errorf("error %v", err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if granted.Load() == 0 {
		t.Error("nothing was granted")
	}
	assertIdle(t, l)
}

// TestTryAcquire takes what is there, waits for nothing, and leaves nothing behind.
func TestTryAcquire(t *testing.T) {
	l := newLimiter(t, LimiterConfig{Capacity: 3, PerCaller: 2})
	first, ok := l.tryAcquire("a", 2)
	if !ok {
		t.Fatal("nothing is in use, and two of three are not given")
	}
	if _, ok := l.tryAcquire("a", 1); ok {
		t.Error("a caller holds more than its share")
	}
	if _, ok := l.tryAcquire("b", 2); ok {
		t.Error("more is in use than there is")
	}
	if got := l.Stats(); got.InUse != 2 || got.Callers != 1 {
		t.Errorf("%+v", got)
	}
	first.Release()
	assertIdle(t, l)
}
