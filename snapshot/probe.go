package snapshot

import (
	"context"
	"errors"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
)

const (
	// probeTimeout bounds a probe. kube-apiserver lets a request wait in a queue of priority and fairness for up to a
	// quarter of --request-timeout, 15 s by default. The probe waits longer, so that it sees the 429 with which it is
	// rejected there.
	probeTimeout = 30 * time.Second
	// secondProbePause is the pause before a second probe, after a revision that is too low. An API server may lag, and
	// kine 0.14 lets its revision fall for up to 249 ms while several clients write (measured).
	secondProbePause = time.Second
)

// probeResult is a probe and the revision that it gave: the upstream was at that revision when the probe was sent, or
// reached it later.
type probeResult struct {
	revision uint64
	probe    source.Probe
}

// probe reads the upstream's current revision. It returns an [otherTimelineError] if that is below the highest revision
// that was seen before.
func (f *feed) probe(ctx context.Context, sent source.Probe) (probeResult, error) {
	lowest := f.collection.minRevision() // before the request, since the stream may raise it meanwhile
	revision, err := f.readRevision(ctx, f.source)
	if err != nil {
		return probeResult{}, err
	}
	revision, err = f.checkRevision(ctx, revision, lowest)
	return probeResult{revision: revision, probe: sent}, err
}

// readRevision reads the upstream's current revision from a source.
func (f *feed) readRevision(ctx context.Context, src source.Source) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, revision, err := src.Probe(ctx)
	return revision, err
}

// checkRevision records the revision that a read of the upstream gave. lowest is the collection's minRevision from
// before that read. If the revision is lower, the upstream is probed once more, over another connection. checkRevision
// returns the revision of the last of these reads, or an [otherTimelineError] if that is too low, too.
func (f *feed) checkRevision(ctx context.Context, revision, lowest uint64) (uint64, error) {
	err := f.collection.recordRevision(revision, lowest)
	if err == nil || !clock.Sleep(ctx, secondProbePause) {
		return revision, err
	}
	elsewhere := f.source
	elsewhere.Client = f.elsewhere
	revision, err = f.readRevision(ctx, elsewhere)
	if err != nil {
		return 0, err
	}
	return revision, f.collection.recordRevision(revision, lowest)
}

// handleProbe handles the outcome of a probe. The stream goes on unless it returns an error.
func (f *feed) handleProbe(result outcome[probeResult]) error {
	now := time.Now()
	_, otherTimeline := errors.AsType[otherTimelineError](result.err)
	switch {
	case result.err == nil:
		f.fresh.Answered(now, result.value.revision, f.collection.recordProbe(result.value))
	case source.IsBusy(result.err):
		// The stream goes on: to open it again would only add to the upstream's load. The state gets older meanwhile.
		f.log.Debug("probe refused", "error", result.err)
		f.fresh.Refused(now, source.RetryPause(f.fresh.RefusalPause(), result.err))
	case otherTimeline, source.IsAnswer(result.err):
		return result.err // a watch would be refused, too, or another server answers now
	default:
		f.log.Debug("probe not answered", "error", result.err)
		f.fresh.Unanswered(now)
	}
	return nil
}

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
