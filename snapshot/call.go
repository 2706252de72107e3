package snapshot

import "context"

// call is a question to the upstream that is under way beside the reading of a stream, at most one
// at a time. The feed alone uses it.
type call[T any] struct {
	outcome chan outcome[T] // nil while none is under way
	cancel  context.CancelFunc
}

// outcome is what came of a call.
type outcome[T any] struct {
	value T
	err   error
}

// start begins one. None is under way.
func (c *call[T]) start(ctx context.Context, ask func(context.Context) (T, error)) {
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan outcome[T], 1)
	c.outcome, c.cancel = out, cancel
	go func() {
		defer cancel()
		value, err := ask(ctx)
		out <- outcome[T]{value, err}
	}()
}

// over takes in that the outcome was received.
func (c *call[T]) over() { c.outcome = nil }

// stop waits for the one under way, so that none speaks for a time that is over.
func (c *call[T]) stop() {
	if c.outcome != nil {
		c.cancel()
		<-c.outcome
		c.over()
	}
}
