package snapshot

import (
	"context"
	"errors"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
)

// probeTimeout bounds a probe. It is longer than kube-apiserver lets a request wait in a queue of
// priority and fairness (a quarter of --request-timeout, 15 s by default), so that a probe which
// is rejected there is seen as the 429 that it is.
const probeTimeout = 30 * time.Second

// probeResult is the revision that the upstream had when it was asked for it, or later.
type probeResult struct {
	revision uint64
	source.Probe
}

// probeAgainAfter is the time after which the upstream is asked once more when its revision went back. An API server may
// lag, and kine 0.14 lets its revision fall for up to 249 ms while several clients write (measured).
const probeAgainAfter = time.Second

// probe reads the upstream's current revision, and checks that it is not below the highest one seen.
func (f *feed) probe(ctx context.Context, sent source.Probe) (probeResult, error) {
	minRevision := f.collection.minRevision()
	rev, err := f.askRevision(ctx, f.source)
	if err != nil {
		return probeResult{}, err
	}
	rev, err = f.observe(ctx, rev, minRevision)
	return probeResult{revision: rev, Probe: sent}, err
}

func (f *feed) askRevision(ctx context.Context, src source.Source) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, rev, err := src.Probe(ctx)
	return rev, err
}

// observe takes in the revision that a read of the upstream gave, and the minRevision from before that read. One below
// the minRevision is a doubt: the upstream is asked once more, over another connection. It returns the revision that
// counts, or an [otherTimelineError].
func (f *feed) observe(ctx context.Context, rev, minRevision uint64) (uint64, error) {
	err := f.collection.observe(rev, minRevision)
	if err == nil || !clock.Sleep(ctx, probeAgainAfter) {
		return rev, err
	}
	again := f.source
	again.Client = f.elsewhere
	rev, err = f.askRevision(ctx, again)
	if err != nil {
		return 0, err
	}
	return rev, f.collection.observe(rev, minRevision)
}

// handleProbe handles the outcome of a probe. The stream goes on unless it returns an error.
func (f *feed) handleProbe(result outcome[probeResult]) error {
	now := time.Now()
	_, otherTimeline := errors.AsType[otherTimelineError](result.err)
	switch {
	case result.err == nil:
		f.fresh.Answered(now, result.value.revision, f.collection.expect(result.value))
	case source.IsBusy(result.err):
		// Opening watches again would not help the upstream. The state gets older meanwhile, as it
		// should.
		f.log.Debug("probe refused", "error", result.err)
		f.fresh.Refused(now, source.Wanted(f.fresh.Pause(), result.err))
	case otherTimeline, source.IsAnswer(result.err):
		return result.err // the watch would not be permitted either, or somebody else answers
	default:
		f.log.Debug("probe not answered", "error", result.err)
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
