package inflight

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// TestOneCallerDoesNotHoldEverything: what one never gives back leaves room for others, who are not
// held up by what it waits for.
func TestOneCallerDoesNotHoldEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := NewLimiter[string](LimiterConfig{Capacity: 10, PerCaller: 5, MaxWaiting: 100, MaxWaitingPerCaller: 50, MaxWait: time.Second})
		expect.NoError(t, err)
		acquire := func(caller string, cost int64) (Grant[string], error) { return l.Acquire(t.Context(), caller, cost) }
		var held []Grant[string]
		for range 5 {
			g, err := acquire("greedy", 1)
			expect.NoError(t, err)
			held = append(held, g)
		}
		late := make(chan error)
		go func() {
			g, err := acquire("greedy", 1)
			g.Release()
			late <- err
		}()
		synctest.Wait()
		begun := time.Now()
		for range 5 { // there is room for five
			g, err := acquire("modest", 1)
			if err != nil || time.Since(begun) > 0 {
				t.Fatalf("after %v: %v", time.Since(begun), err)
			}
			defer g.Release()
		}
		if err := <-late; !errors.Is(err, OverloadTimeOut) {
			t.Errorf("the sixth of one caller: %v", err)
		}
		held[0].Release()
		if g, err := acquire("greedy", 1); err != nil {
			t.Errorf("after one was given back: %v", err)
		} else {
			g.Release()
		}
		for i := range held {
			held[i].Release()
		}
	})
}

// TestLargeRequestOfOneCaller: what costs more than one may hold, or than there is, is granted to a
// caller who holds nothing else, and leaves room for others.
func TestLargeRequestOfOneCaller(t *testing.T) {
	for _, cost := range []int64{9, 1000} {
		l, err := NewLimiter[string](LimiterConfig{Capacity: 10, PerCaller: 5})
		expect.NoError(t, err)
		large, err := l.Acquire(t.Context(), "a", cost)
		expect.NoError(t, err)
		if _, err := l.Acquire(t.Context(), "a", 1); err == nil {
			t.Errorf("one more beside %d", cost)
		}
		if g, err := l.Acquire(t.Context(), "b", cost); err != nil {
			t.Errorf("another caller's beside %d: %v", cost, err)
		} else {
			g.Release()
		}
		if g, ok := l.tryAcquire("b", 5); !ok {
			t.Errorf("nothing is left beside %d", cost)
		} else {
			g.Release()
		}
		large.Release()
	}
}

// TestNoWaitBesideOwnBounds: who need not wait gets what is free although somebody waits for its own.
// Who waits for what is free is overtaken no more than by those who wait.
func TestNoWaitBesideOwnBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := NewLimiter[string](LimiterConfig{Capacity: 10, PerCaller: 5, MaxWaiting: 100, MaxWaitingPerCaller: 50, MaxWait: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		try := func(caller string, cost int64, want bool) Grant[string] {
			t.Helper()
			g, ok := l.tryAcquire(caller, cost)
			if ok != want {
				t.Errorf("%d for %s: %t", cost, caller, ok)
			}
			return g
		}
		wait := func(caller string, cost int64) {
			go func() { _, _ = l.Acquire(t.Context(), caller, cost) }()
			synctest.Wait()
		}
		try("greedy", 5, true)
		wait("greedy", 1)
		try("greedy", 1, false)
		try("modest", 4, true)
		wait("another", 2)
		for _, want := range []bool{true, true, false} { // twice 1 have overtaken 2
			g := try("late", 1, want)
			g.Release()
		}
		if stats := l.Stats(); stats.InUse != 9 || stats.Waiting != 2 || stats.Callers != 3 || len(stats.Refused) != 0 {
			t.Errorf("%+v", stats)
		}
	})
}
