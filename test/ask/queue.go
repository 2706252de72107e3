package ask

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/poll"
)

// pollEvery is the time between two looks at a queue.
const pollEvery = 20 * time.Millisecond

// Queue is what is to be done later, by workers, in order: such as comparing answers while others are
// asked for. The zero Queue is empty. It is for any number of goroutines.
type Queue[T any] struct {
	mu      sync.Mutex
	waiting []T
	working int
}

// Add puts one thing at the end.
func (q *Queue[T]) Add(one T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, one)
}

// Work does what is in the queue, and what comes, by so many workers, until ctx ends.
func (q *Queue[T]) Work(ctx context.Context, workers int, do func(context.Context, T)) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				if one, ok := q.take(); ok {
					do(ctx, one)
					q.done()
				} else if !poll.Pause(ctx, pollEvery) {
					return
				}
			}
		})
	}
	all.Wait()
}

// Drain waits until all that was added is done; an error, if that takes longer than patience.
func (q *Queue[T]) Drain(ctx context.Context, patience time.Duration) error {
	return poll.Try(ctx, patience, pollEvery, "what is in the queue", func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		if n := len(q.waiting) + q.working; n > 0 {
			return fmt.Errorf("%d are still to be done", n)
		}
		return nil
	})
}

func (q *Queue[T]) take() (one T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return one, false
	}
	one = q.waiting[0]
	q.waiting = q.waiting[1:]
	q.working++
	return one, true
}

func (q *Queue[T]) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.working--
}
