package proxy

import (
	"context"
	"fmt"
)

// turns bounds how many questions are with the upstream at once, and how many more wait for that.
// Questions are not tied to the callers who wait for their answers, so callers who come and go must
// not be able to pile them up.
type turns struct {
	pending chan struct{} // a token for every question not yet answered
	sending chan struct{} // a token for every question with the upstream
}

func newTurns(atOnce, waiting int) turns {
	return turns{
		pending: make(chan struct{}, atOnce+waiting),
		sending: make(chan struct{}, atOnce),
	}
}

// take waits for a turn and returns what ends it. It fails at once with full if too many wait
// already, and with ctx.
func (t turns) take(ctx context.Context, full error) (end func(), err error) {
	select {
	case t.pending <- struct{}{}:
	default:
		return nil, full
	}
	select {
	case t.sending <- struct{}{}:
		return func() { <-t.sending; <-t.pending }, nil
	case <-ctx.Done():
		<-t.pending
		return nil, fmt.Errorf("the turn to ask the upstream did not come: %w", ctx.Err())
	}
}
