package oracle_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/oracle"
)

// TestQueue: all is done, once, by as many workers as there are, also what comes while they work.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q oracle.Queue[int]
		var mu sync.Mutex
		var done []int
		at, most := 0, 0
		ctx, cancel := context.WithCancel(t.Context())
		var working sync.WaitGroup
		working.Go(func() {
			q.Work(ctx, 3, func(_ context.Context, i int) {
				mu.Lock()
				at++
				most = max(most, at)
				mu.Unlock()
				<-time.After(time.Second)
				mu.Lock()
				defer mu.Unlock()
				at--
				done = append(done, i)
				if i < 5 {
					q.Add(i + 5)
				}
			})
		})
		for i := range 5 {
			q.Add(i)
		}
		// At the end of the first five, what they added is in the queue.
		for range 2 {
			if err := q.Drain(ctx, time.Minute); err != nil {
				t.Error(err)
			}
		}
		mu.Lock()
		slices.Sort(done)
		if diff := cmp.Diff([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, done); diff != "" {
			t.Errorf("what was done (-want +got):\n%s", diff)
		}
		if most != 3 {
			t.Errorf("%d at a time, not 3", most)
		}
		mu.Unlock()
		cancel()
		working.Wait()
	})
}

// TestQueueIsNotDrained: neither while something waits, nor while it is being done.
func TestQueueIsNotDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q oracle.Queue[string]
		q.Add("a thing")
		if err := q.Drain(t.Context(), time.Second); err == nil {
			t.Error("drained, and nobody works")
		}
		ctx, cancel := context.WithCancel(t.Context())
		var working sync.WaitGroup
		working.Go(func() { q.Work(ctx, 1, func(ctx context.Context, _ string) { <-ctx.Done() }) })
		if err := q.Drain(t.Context(), time.Minute); err == nil {
			t.Error("drained while the worker works")
		}
		cancel()
		working.Wait()
		if err := q.Drain(t.Context(), time.Second); err != nil {
			t.Error(err)
		}
	})
}

// TestDrainWhileOthersAdd: what comes later is not waited for, though there never is a moment
// without; what came before is, also by a worker who is slower than the others.
func TestDrainWhileOthersAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow, before = 2, 5 // the number of one, and of all
		var q oracle.Queue[int]
		var mu sync.Mutex
		var done []int
		for i := range before {
			q.Add(i)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			for i := before; ctx.Err() == nil; i++ {
				q.Add(i)
				<-time.After(time.Second / 4) // sooner than two workers can do it
			}
		})
		all.Go(func() {
			q.Work(ctx, 2, func(_ context.Context, i int) {
				took := time.Second
				if i == slow {
					took = time.Minute
				}
				<-time.After(took)
				mu.Lock()
				defer mu.Unlock()
				done = append(done, i)
			})
		})
		begun := time.Now()
		if err := q.Drain(ctx, time.Hour); err != nil {
			t.Error(err)
		}
		// The slow one began when the first two were done.
		if took := time.Since(begun).Truncate(time.Second); took != time.Minute+time.Second {
			t.Errorf("drained after %v", took)
		}
		mu.Lock()
		for i := range before {
			if !slices.Contains(done, i) {
				t.Errorf("drained, and %d is not done", i)
			}
		}
		mu.Unlock()
		cancel()
		all.Wait()
	})
}
