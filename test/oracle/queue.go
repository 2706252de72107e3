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

// pollInterval is the time between two polls of a queue.
const pollInterval = 20 * time.Millisecond

// Queue has jobs for workers, in order. The zero Queue is empty. A Queue is safe for concurrent use.
type Queue[T any] struct {
	mu      sync.Mutex
	waiting []*T
	undone  map[*T]bool // the jobs that wait, or are being done
}

// Add appends a job.
func (q *Queue[T]) Add(job T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.undone == nil {
		q.undone = map[*T]bool{}
	}
	q.waiting = append(q.waiting, &job)
	q.undone[&job] = true
}

// Work lets a number of workers call do for each job, until ctx ends. It returns when the last worker has ended.
func (q *Queue[T]) Work(ctx context.Context, workers int, do func(context.Context, T)) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				if job := q.take(); job != nil {
					do(ctx, *job)
					q.noteDone(job)
				} else if !clock.Sleep(ctx, pollInterval) {
					return
				}
			}
		})
	}
	all.Wait()
}

// Drain waits until all jobs that were added before the call are done. It returns an error if that takes longer than patience.
func (q *Queue[T]) Drain(ctx context.Context, patience time.Duration) error {
	q.mu.Lock()
	remaining := maps.Clone(q.undone)
	q.mu.Unlock()
	return poll.Try(ctx, patience, pollInterval, "all jobs of the queue done", func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		maps.DeleteFunc(remaining, func(job *T, _ bool) bool { return !q.undone[job] })
		if len(remaining) > 0 {
			return fmt.Errorf("%d jobs are not done", len(remaining))
		}
		return nil
	})
}

// take removes the next waiting job and returns it, or nil if no job waits.
func (q *Queue[T]) take() *T {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return nil
	}
	job := q.waiting[0]
	q.waiting = q.waiting[1:]
	return job
}

// noteDone notes that a job is done.
func (q *Queue[T]) noteDone(job *T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.undone, job)
}
