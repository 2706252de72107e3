package snapshot

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// The reasons why a state must be loaded anew.
var (
	// errObject means that an empty collection has got its first object, and the form of items could not be learned
	// from that object.
	errObject = errors.New("the first object of an empty collection: its form could not be learned")
	// errReloadRequested means that [Collection.requestReload] was called, since the API servers may write another
	// state than the known one.
	errReloadRequested = errors.New("the API servers write it differently now")
	// errUnproven means that a stream could go on, but nothing shows that the upstream has the same timeline.
	errUnproven = errors.New("the upstream may have another timeline")
)

// retryPause is the time for which a feed waits before its next session.
type retryPause struct {
	// full is the whole pause.
	full time.Duration
	// minimum is the part of the pause that no request can cut short.
	minimum time.Duration
}

// handleFailure decides what becomes of the state after an error, and how long the feed pauses. err is nil if the stream
// ended at its timeout, but at once.
func (f *feed) handleFailure(err error, now time.Time) retryPause {
	if !source.Answered(err, http.StatusForbidden) {
		f.forbiddenSince = time.Time{}
	} else if f.forbiddenSince.IsZero() {
		f.forbiddenSince = now
	}
	minimum := f.dropOrKeep(err, now)
	retryAfter := source.RetryPause(minimum, err)
	p := retryPause{full: retryAfter, minimum: retryAfter}
	if minimum == 0 {
		p.full = max(retryAfter, f.retries.Step())
	}
	return p
}

// dropOrKeep drops the state if an error puts it in doubt. Otherwise the state stays, and is given until it is too old;
// another is loaded beside it if the feed cannot go on from it. dropOrKeep returns the minimum of the pause; 0 if a retry
// is likely to cure the failure.
func (f *feed) dropOrKeep(err error, now time.Time) (minimum time.Duration) {
	_, isInconsistent := errors.AsType[wire.InconsistencyError](err)
	_, isOtherTimeline := errors.AsType[otherTimelineError](err)
	if f.mustLoad && f.collection.hasState() { // a load beside the known state has failed
		switch {
		case isInconsistent: // this says nothing of the known state
			return 0
		case errors.Is(err, wire.ErrForm): // nor does this
			return wait.Jitter(unlikelyRetry, 1)
		case errors.Is(err, errFull): // without the known state there may be room; lists wait for the load
			f.drop(reason.Warming, reason.Memory)
			return 0
		}
	}
	switch {
	case errors.Is(err, errObject): // comes first, since it may wrap other errors
		f.loadAnew(reason.FirstObject)
	case isOtherTimeline:
		f.drop(reason.Warming, reason.WentBack)
		return Skew // until then, some API servers may still have the old timeline
	case isInconsistent:
		f.drop(reason.Warming, reason.Contradiction)
	case source.Answered(err, http.StatusNotFound):
		f.drop(reason.Warming, reason.NotFound)
	case source.Answered(err, http.StatusNotAcceptable): // the resource does not have this representation
		f.drop(reason.Form, reason.Other)
		return wait.Jitter(unlikelyRetry, 1)
	case errors.Is(err, wire.ErrForm):
		f.drop(reason.Form, reason.Form)
		return wait.Jitter(unlikelyRetry, 1)
	case errors.Is(err, errFull):
		f.drop(reason.Memory, reason.Memory)
		return f.overflows.Step()
	case source.Answered(err, http.StatusForbidden): // an API server that has just started refuses everybody for a moment
		if now.Sub(f.forbiddenSince) >= refusalGrace || !f.collection.hasState() {
			f.drop(reason.NotPermitted, reason.NotPermitted)
			return f.refusals.Step()
		}
	case errors.Is(err, errSlow): // another load would hardly be faster
		return wait.Jitter(unlikelyRetry, 1)
	case source.Answered(err, http.StatusGone): // the upstream has forgotten later changes
		f.loadAnew(reason.Expired)
	case errors.Is(err, errReloadRequested):
		f.loadAnew(reason.Upstream)
	case errors.Is(err, errUnproven):
		f.loadAnew(reason.Upstream)
		return f.doubts.Step()
	}
	return 0
}

// drop forgets the state, if there is one, so that the next session loads another. Requests get the reason why meanwhile;
// loss is as in loadAnew.
func (f *feed) drop(why, loss reason.Reason) {
	f.loadAnew(loss)
	f.collection.drop(why)
}

// loadAnew requires that the next session loads a state. The state that is known, if any, counts as lost from now on, by the
// cause loss.
func (f *feed) loadAnew(loss reason.Reason) {
	if !f.mustLoad {
		f.collection.counts.addLoss(loss)
	}
	f.mustLoad = true
}

// logFailure logs the error of a session.
func (f *feed) logFailure(ctx context.Context, err error, pause retryPause) {
	message := "watch not resumed yet"
	if f.mustLoad {
		message = "collection cannot be followed"
	}
	f.log.Log(ctx, f.logLevel(err), message, "error", err, "attempt", f.attempt, "retry", pause.full.Round(time.Millisecond))
}

// loggedAttempt is the attempt at which a failure that may be about this resource only is logged, once: by then it has
// lasted for more than a moment.
const loggedAttempt = 4

// logLevel returns the level at which the error of a session is logged.
func (f *feed) logLevel(err error) slog.Level {
	mayBeOfThisResource := source.IsBusy(err) && f.attempt == loggedAttempt
	switch {
	case err == nil, errors.Is(err, errUnproven):
		return slog.LevelDebug
	case source.IsUpstreamFailure(err) && !mayBeOfThisResource:
		return slog.LevelDebug // upstream.Health logs failures of the upstream, once for all feeds
	case f.collection.hasState():
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// backoffs give the pauses before the next session.
type backoffs struct {
	retries   wait.Backoff // after a failure that a retry is likely to cure
	refusals  wait.Backoff // after a 403
	overflows wait.Backoff // after a state that does not fit
	doubts    wait.Backoff // before a load because the timeline was not shown to be the same
}

const (
	// unlikelyRetry is the pause after a failure that a retry is unlikely to cure.
	unlikelyRetry = 2 * time.Minute
	// maxOverflowPause bounds the pause after a state that did not fit.
	maxOverflowPause = 40 * time.Minute
	// maxDoubtPause bounds the pause before a load that is due because streams break.
	maxDoubtPause = 2 * time.Minute
	// stableAfter is the age of a state from which on the next overflow or doubt counts as the first one again.
	stableAfter = maxOverflowPause
	// refusalGrace is the duration for which a state is kept after a 403. In that time an API server that has just started
	// has read its roles.
	refusalGrace = 15 * time.Second
)

// Each feed has copies of these.
var (
	retryBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 20 * time.Second}
	// refusalBackoff grows, because an account that lacks a right seldom gets it soon.
	refusalBackoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: unlikelyRetry}
	// overflowBackoff grows, because finding out that a state does not fit may cost the upstream most of a whole list.
	overflowBackoff = wait.Backoff{Duration: unlikelyRetry, Factor: 2, Jitter: 0.5, Steps: 10, Cap: maxOverflowPause}
	// doubtBackoff grows, because a reload must not follow each break where streams break again and again.
	doubtBackoff = wait.Backoff{Duration: time.Second, Factor: 4, Jitter: 0.5, Steps: 10, Cap: maxDoubtPause}

	initialBackoffs = backoffs{retries: retryBackoff, refusals: refusalBackoff, overflows: overflowBackoff, doubts: doubtBackoff}
)
