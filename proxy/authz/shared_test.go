package authz

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slowQuestion is a question whose answer is how often it was asked, and comes after a while.
type slowQuestion struct {
	takes time.Duration
	asked atomic.Int64
	fails error
}

func (q *slowQuestion) ask(context.Context, uint64) (dated[int64], error) {
	now := time.Now()
	n := q.asked.Add(1)
	time.Sleep(q.takes)
	return dated[int64]{n, now}, q.fails
}

func newShared(ttl time.Duration) (*shared[int64], *atomic.Uint64) {
	epoch := new(atomic.Uint64)
	return &shared[int64]{ttl: ttl, epoch: epoch.Load}, epoch
}

// wantShared asks once and compares.
func wantShared(t *testing.T, s *shared[int64], key string, q *slowQuestion, want int64) {
	t.Helper()
	got, _, err := s.get(t.Context(), key, q.ask)
	if got.value != want || err != nil {
		t.Errorf("%d, %v, want %d", got.value, err, want)
	}
}

func TestSharedIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newShared(time.Minute)
		q, other := &slowQuestion{takes: time.Second}, &slowQuestion{takes: time.Second}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { wantShared(t, s, "a", q, 1) })
			all.Go(func() { wantShared(t, s, "b", other, 1) })
		}
		all.Wait()
		wantShared(t, s, "a", q, 2) // nothing is remembered here
	})
}

// TestSharedAge: who joined gets an answer of the past as long as the ttl has it, whoever asked
// gets it in any case.
func TestSharedAge(t *testing.T) {
	for name, tt := range map[string]struct {
		ttl    time.Duration
		second int64
	}{
		"younger than the ttl": {4*time.Second + time.Nanosecond, 1},
		"as old as the ttl":    {4 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := newShared(tt.ttl)
				q := &slowQuestion{takes: 4 * time.Second}
				var all sync.WaitGroup
				all.Go(func() { wantShared(t, s, "a", q, 1) })
				time.Sleep(time.Second)
				all.Go(func() { wantShared(t, s, "a", q, tt.second) })
				all.Wait()
			})
		})
	}
}

// TestSharedEpoch: nobody gets what was asked for in an epoch that has ended, nor joins it.
func TestSharedEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, epoch := newShared(time.Minute)
		q := &slowQuestion{takes: 2 * time.Second}
		var all sync.WaitGroup
		all.Go(func() { wantShared(t, s, "a", q, 2) })
		time.Sleep(time.Second)
		epoch.Add(1)
		all.Go(func() { wantShared(t, s, "a", q, 2) })
		all.Wait()
	})
}

func TestSharedOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, epoch := newShared(time.Minute)
		asked := 0
		got, _, err := s.get(t.Context(), "a", func(_ context.Context, in uint64) (dated[int64], error) {
			asked++
			if now := epoch.Add(1); in != now-1 {
				t.Errorf("asked in epoch %d, it is %d", in, now-1)
			}
			return dated[int64]{1, time.Now()}, nil
		})
		if got.value != 0 || !errors.Is(err, errOvertaken) || asked != maxRounds {
			t.Errorf("%d, %v, asked %d times", got.value, err, asked)
		}
	})
}

// TestSharedLeave: who leaves does not wait, and takes nobody's answer away.
func TestSharedLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newShared(time.Minute)
		q := &slowQuestion{takes: 5 * time.Second}
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			_, _, err := s.get(ctx, "a", func(ctx context.Context, epoch uint64) (dated[int64], error) {
				got, err := q.ask(ctx, epoch)
				return got, errors.Join(err, ctx.Err())
			})
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("left after %v: %v", time.Since(began), err)
			}
		})
		synctest.Wait()
		wantShared(t, s, "a", q, 1)
		all.Wait()
	})
}

func TestSharedError(t *testing.T) {
	s, _ := newShared(time.Minute)
	q := &slowQuestion{fails: errors.New("broken")}
	for range 2 { // an error is not asked again by itself, nor kept
		if got, _, err := s.get(t.Context(), "a", q.ask); got.value != 0 || !errors.Is(err, q.fails) {
			t.Errorf("%d, %v", got.value, err)
		}
	}
	if n := q.asked.Load(); n != 2 {
		t.Errorf("asked %d times", n)
	}
}
