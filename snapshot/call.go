package snapshot

import "context"

// call makes requests to the upstream while the feed reads a stream, one at a time. It is for one goroutine. The zero
// value is ready for use.
type call[T any] struct {
	outcome chan outcome[T] // nil while no request is in flight
	cancel  context.CancelFunc
}

// outcome is the result of a call's request.
type outcome[T any] struct {
	value T
	err   error
}

// start begins a request. No other may be in flight.
func (c *call[T]) start(ctx context.Context, request func(context.Context) (T, error)) {
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan outcome[T], 1)
	c.outcome, c.cancel = out, cancel
	go func() {
		defer cancel()
		value, err := request(ctx)
		out <- outcome[T]{value, err}
	}()
}

// clear must be called after the outcome was received.
func (c *call[T]) clear() { c.outcome = nil }

// stop cancels the request in flight, if any, and waits for its end, so that its outcome is not used later.
func (c *call[T]) stop() {
	if c.outcome != nil {
		c.cancel()
		<-c.outcome
		c.clear()
	}
}
