package snapshot

import (
	"context"
	"errors"
	"time"

	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/source"
)

// probeTimeout bounds a probe. It is longer than kube-apiserver lets a request wait in a queue of
// priority and fairness (a quarter of --request-timeout, 15 s by default), so that a probe which
// is rejected there is seen as the 429 that it is.
const probeTimeout = 30 * time.Second

// probed is the revision that the upstream had when it was asked for it, or later.
type probed struct {
	revision uint64
	freshness.Probe
}

// probe reads the upstream's current revision, and checks that it is not below the highest one
// seen.
func (f *feed) probe(ctx context.Context, sent freshness.Probe) (probed, error) {
	floor := f.collection.floor()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, rev, err := f.source.Probe(ctx)
	if err != nil {
		return probed{}, err
	}
	return probed{rev, sent}, f.collection.observe(rev, floor)
}

// probeEnded handles the outcome of a probe. The stream goes on unless it returns an error.
func (f *feed) probeEnded(of outcome[probed]) error {
	now := time.Now()
	_, past := errors.AsType[anotherPastError](of.err)
	switch {
	case of.err == nil:
		f.fresh.Answered(now, of.value.revision, f.collection.expect(of.value))
	case source.IsBusy(of.err):
		// Opening watches again would not help the upstream. The state gets older meanwhile, as it
		// should.
		f.log.Debug("probe refused", "error", of.err)
		f.fresh.Refused(now, source.Wanted(f.fresh.Pause(), of.err))
	case past, source.IsAnswer(of.err):
		return of.err // the watch would not be permitted either, or somebody else answers
	default:
		f.log.Debug("probe not answered", "error", of.err)
		f.fresh.Unanswered(now)
	}
	return nil
}

// call is a request to the upstream that is made while a stream is being read, at most one at a
// time. Only the feed uses it.
type call[T any] struct {
	outcome chan outcome[T] // nil while none is under way
	cancel  context.CancelFunc
}

// outcome is the result of a call.
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

// clear must be called when the outcome was received.
func (c *call[T]) clear() { c.outcome = nil }

// stop waits until the call in progress has ended, so that its outcome is not used later.
func (c *call[T]) stop() {
	if c.outcome != nil {
		c.cancel()
		<-c.outcome
		c.clear()
	}
}
