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

// probeResult is a probe and the revision that it gave: the upstream had it when the probe was sent, or later.
type probeResult struct {
	revision uint64
	source.Probe
}

// probeAgainAfter is the pause before a second probe after a revision that is too low. An API server may lag, and
// kine 0.14 lets its revision fall for up to 249 ms while several clients write (measured).
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

// askRevision asks a source for the upstream's current revision.
func (f *feed) askRevision(ctx context.Context, src source.Source) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, rev, err := src.Probe(ctx)
	return rev, err
}

// observe records the revision that a read of the upstream gave; minRevision is from before that read. If it is lower,
// the upstream is probed once more, over another connection. observe returns the revision of the last of these
// reads, or an [otherTimelineError] if that is too low, too.
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
		// The stream goes on: to open it again would only add to the upstream's load. The state gets older meanwhile.
		f.log.Debug("probe refused", "error", result.err)
		f.fresh.Refused(now, source.RetryPause(f.fresh.Pause(), result.err))
	case otherTimeline, source.IsAnswer(result.err):
		return result.err // a watch would be refused, too, or another server answers now
	default:
		f.log.Debug("probe not answered", "error", result.err)
		f.fresh.Unanswered(now)
	}
	return nil
}

// call makes requests to the upstream while the feed reads a stream, one at a time. It is for one goroutine.
type call[T any] struct {
	outcome chan outcome[T] // nil while no request is under way
	cancel  context.CancelFunc
}

// outcome is what a call's request returned.
type outcome[T any] struct {
	value T
	err   error
}

// start begins a request. No other may be under way.
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

// stop cancels the request that is under way, if any, and waits for its end, so that its outcome is not used later.
func (c *call[T]) stop() {
	if c.outcome != nil {
		c.cancel()
		<-c.outcome
		c.clear()
	}
}
