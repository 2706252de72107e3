package oracle

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// pollEvery is the time between two looks at a queue.
const pollEvery = 20 * time.Millisecond

// Queue is what is to be done later, by workers, in order: such as comparing answers while others
// are asked for. The zero Queue is empty. It is for any number of goroutines.
type Queue[T any] struct {
	mu      sync.Mutex
	waiting []*T
	undone  map[*T]bool // what waits, and what is being done
}

// Add puts one thing at the end.
func (q *Queue[T]) Add(one T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.undone == nil {
		q.undone = map[*T]bool{}
	}
	q.waiting = append(q.waiting, &one)
	q.undone[&one] = true
}

// Work does what is in the queue, and what comes, by so many workers, until ctx ends.
func (q *Queue[T]) Work(ctx context.Context, workers int, do func(context.Context, T)) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				if one := q.take(); one != nil {
					do(ctx, *one)
					q.done(one)
				} else if !clock.Sleep(ctx, pollEvery) {
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
	before := maps.Clone(q.undone)
	q.mu.Unlock()
	return poll.Try(ctx, patience, pollEvery, "what is in the queue", func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		maps.DeleteFunc(before, func(one *T, _ bool) bool { return !q.undone[one] })
		if len(before) > 0 {
			return fmt.Errorf("%d are still to be done", len(before))
		}
		return nil
	})
}

// take returns the next one, or nil.
func (q *Queue[T]) take() (one *T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 {
		one, q.waiting = q.waiting[0], q.waiting[1:]
	}
	return one
}

func (q *Queue[T]) done(one *T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.undone, one)
}
