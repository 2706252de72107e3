package snapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
)

// A probe asks the upstream for its current revision: it lists the newest state of a name that cannot exist, so the list is
// empty. Once the feed has read everything up to that revision, its newest state has everything from before the probe was sent.

const (
	// probeTimeout bounds a probe. A kube-apiserver that is too busy lets a request wait in a queue for up to a quarter of
	// its --request-timeout (15 s of 60 s by default), and then rejects it with 429. A probe waits longer, to get the 429.
	probeTimeout = 30 * time.Second
	// secondProbePause is the pause before a revision that is too low is read again. An API server may lag, and kine 0.14
	// lets its revision fall for up to 249 ms while several clients write (measured).
	secondProbePause = time.Second
)

// runProbe sends a probe and returns the upstream's current revision. It returns [errOtherTimeline] if the revision is below
// the highest one seen before the probe.
func (f *feed) runProbe(ctx context.Context) (uint64, error) {
	// This must be read before the probe is sent: while the answer is on its way, the stream may raise the highest revision,
	// and the answer would look too low.
	highestBefore := f.collection.highestSeenRevision()
	revision, err := f.readRevision(ctx, f.source)
	if err != nil {
		return 0, err
	}
	return f.confirmRevision(ctx, revision, highestBefore)
}

// probeWithoutStream is called while no stream is read. It waits until the pause of probes is over, and runs a probe. The
// caller records the answer (Freshness.ProbeAnswered) once a stream is open.
func (f *feed) probeWithoutStream(ctx context.Context) (uint64, error) {
	if !clock.Sleep(ctx, time.Until(f.freshness.ProbePauseEnd())) {
		return 0, ctx.Err()
	}
	f.freshness.ProbeSent(f.collection.shared.probes.Next())
	f.collection.publishFreshness(f.freshness)
	return f.runProbe(ctx)
}

// readRevision reads the upstream's current revision from a source.
func (f *feed) readRevision(ctx context.Context, src source.Source) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, revision, err := src.Probe(ctx)
	return revision, err
}

// confirmRevision checks and records the revision that a first read of the upstream gave. highestBefore is the collection's
// highestSeenRevision from before the first read. If the revision is lower, confirmRevision itself makes a second read, one
// second later and over another connection, which may lead to another API server. It returns the revision of the last read. An
// example in which highestBefore is 150:
//
//	first read   second read   result
//	152          none          152
//	148          151           151: the first API server lagged
//	148          148           [errOtherTimeline]
func (f *feed) confirmRevision(ctx context.Context, revision, highestBefore uint64) (uint64, error) {
	err := f.collection.recordRevision(revision, highestBefore)
	if err == nil {
		return revision, nil
	}
	if !clock.Sleep(ctx, secondProbePause) {
		return 0, err
	}
	otherConnection := f.source
	otherConnection.Client = f.config.Elsewhere
	revision, err = f.readRevision(ctx, otherConnection)
	if err != nil {
		return 0, err
	}
	return revision, f.collection.recordRevision(revision, highestBefore)
}

// handleProbe handles the result of a probe that was sent while a stream is read: a revision or an error. If handleProbe
// returns an error, the stream must not be read any more.
func (f *feed) handleProbe(revision uint64, err error) error {
	now := time.Now()
	switch {
	case err == nil:
		f.freshness.ProbeAnswered(now, revision)
	case source.IsBusy(err):
		// The stream goes on, although nothing proves the state: another stream would only add to the upstream's load. The next
		// probe follows after RefusedProbePause, or after the answer's Retry-After if that is longer.
		f.log.Debug("probe refused", "error", err)
		f.freshness.ProbeRefused(now, source.RetryPause(f.freshness.RefusedProbePause(), err))
	case errors.Is(err, errOtherTimeline): // the stream is of the old timeline
		return err
	case source.IsAnswer(err): // for example 403: the upstream would refuse a watch, too
		return err
	default:
		f.log.Debug("probe not answered", "error", err)
		f.freshness.ProbeFailed(now)
	}
	return nil
}

// recordProof records the last probe that has proven the newest state: the state has reached the revision that the probe gave.
func (f *feed) recordProof() {
	lastReached := f.freshness.StateReached(f.collection.view.Load().To)
	f.collection.prove(lastReached)
}

// highestSeenRevision returns the highest revision that the upstream has given since the state was last dropped. A later read
// of the upstream must not give a lower revision.
func (c *Collection) highestSeenRevision() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.highestSeen
}

// errOtherTimeline says that a read of the upstream gave a lower revision than an earlier read. A timeline is one history of
// etcd, in which the revision never falls. So a restored backup may have begun another timeline. But an API server may also
// lag, so the error counts only after a second read has confirmed it (see feed.confirmRevision).
var errOtherTimeline = errors.New("the upstream's storage was restored or replaced")

// recordRevision records the revision that a read of the upstream gave. highestBefore is the highestSeenRevision from before
// the read was sent. recordRevision returns [errOtherTimeline] if the revision is lower. A much higher revision is no error,
// since some control planes use the time in nanoseconds as the revision.
func (c *Collection) recordRevision(revision, highestBefore uint64) error {
	if revision < highestBefore {
		return fmt.Errorf("%w: its revision went from %d to %d", errOtherTimeline, highestBefore, revision)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.highestSeen = max(c.highestSeen, revision)
	return nil
}
