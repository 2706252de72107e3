package oracle

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/harness/poll"
)

// pollEvery is the time between two looks at a queue.
const pollEvery = 20 * time.Millisecond

// Queue is what is to be done later, by workers, in order: such as comparing answers while others
// are asked for. The zero Queue is empty. It is for any number of goroutines.
type Queue[T any] struct {
	mu      sync.Mutex
	added   int   // how many ever were; each has the number that was added before it
	waiting []T   // the last of them
	working []int // the numbers of those that are being done, the lowest first
}

// Add puts one thing at the end.
func (q *Queue[T]) Add(one T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, one)
	q.added++
}

// Work does what is in the queue, and what comes, by so many workers, until ctx ends.
func (q *Queue[T]) Work(ctx context.Context, workers int, do func(context.Context, T)) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				if one, number, ok := q.take(); ok {
					do(ctx, one)
					q.done(number)
				} else if !poll.Pause(ctx, pollEvery) {
					return
				}
			}
		})
	}
	all.Wait()
}

// Drain waits until all that had been added before is done, while others may go on adding; an
// error, if that takes longer than patience.
func (q *Queue[T]) Drain(ctx context.Context, patience time.Duration) error {
	q.mu.Lock()
	before := q.added
	q.mu.Unlock()
	return poll.Try(ctx, patience, pollEvery, "what is in the queue", func() error {
		if n := q.left(before); n > 0 {
			return fmt.Errorf("%d are still to be done", n)
		}
		return nil
	})
}

// left is how many are still to be done of those whose number is lower.
func (q *Queue[T]) left(number int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	working, _ := slices.BinarySearch(q.working, number)
	return working + max(0, number-q.next())
}

// next is the number of what is to be taken next. The caller holds q.mu.
func (q *Queue[T]) next() int { return q.added - len(q.waiting) }

func (q *Queue[T]) take() (one T, number int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return one, 0, false
	}
	one, number = q.waiting[0], q.next()
	q.waiting = q.waiting[1:]
	q.working = append(q.working, number)
	return one, number, true
}

func (q *Queue[T]) done(number int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := slices.BinarySearch(q.working, number); ok {
		q.working = slices.Delete(q.working, i, i+1)
	}
}
