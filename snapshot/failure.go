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

// Errors after which a feed leaves its stream, and loads the state anew.
var (
	// errObject means that an empty collection got its first object, and the form of items could not be learned from it.
	errObject = errors.New("the first object of an empty collection: its form could not be learned")
	// errReloadRequested means that [Collection.requestReload] was called: the API servers may write the state in other bytes.
	errReloadRequested = errors.New("the API servers write it differently now")
	// errUnproven means that a stream could go on, but nothing shows that the upstream has the same timeline.
	errUnproven = errors.New("the upstream may have another timeline")
)

// handleFailure does to the state what an error requires, and returns how long the feed pauses. A request can shorten the
// pause, but not below minimum. err is nil after a stream that ended at its timeout, but within minStreamLife.
func (f *feed) handleFailure(err error, now time.Time) (pause, minimum time.Duration) {
	if !source.Answered(err, http.StatusForbidden) {
		f.forbiddenSince = time.Time{}
	} else if f.forbiddenSince.IsZero() {
		f.forbiddenSince = now
	}
	r := f.reactionTo(err, now)
	if r.loss != reason.None {
		if !f.mustLoad { // otherwise the loss was counted when the load became due
			f.collection.counts.addLoss(r.loss)
		}
		f.mustLoad = true
	}
	if r.drop != reason.None {
		f.collection.drop(r.drop)
	}
	minimum = source.RetryPause(r.minPause, err)
	if r.minPause == 0 {
		return max(minimum, f.retries.Step()), minimum
	}
	return minimum, minimum
}

// reaction is what an error requires. The zero reaction keeps the state, which is given until it is too old.
type reaction struct {
	// loss is the cause under which the known state counts as lost; None if it is kept. After a loss, the next session loads
	// a state.
	loss reason.Reason
	// drop, unless it is None, drops the known state now, and is the reason that requests get until the next load. With None,
	// requests get the known state until the load is complete.
	drop reason.Reason
	// minPause is the shortest pause; 0 if a retry is likely to cure the failure.
	minPause time.Duration
}

// reactionTo returns what an error requires. If the pause comes from a backoff, it takes the backoff's next step.
func (f *feed) reactionTo(err error, now time.Time) reaction {
	_, isInconsistent := errors.AsType[wire.InconsistencyError](err)
	_, isOtherTimeline := errors.AsType[otherTimelineError](err)
	isForm := errors.Is(err, wire.ErrForm)
	isFull := errors.Is(err, errFull)
	hasState := f.collection.hasState()
	isForbidden := source.Answered(err, http.StatusForbidden) && (now.Sub(f.forbiddenSince) >= refusalGrace || !hasState)
	isReload := f.mustLoad && hasState // a load beside the known state has failed
	switch {
	case isReload && isInconsistent: // only the new state is in doubt
		return reaction{}
	case isReload && isForm: // likewise
		return reaction{minPause: wait.Jitter(unlikelyRetry, 1)}
	case isReload && isFull: // without the known state there may be room, and lists wait for the load
		return reaction{loss: reason.Memory, drop: reason.Warming}
	case errors.Is(err, errObject): // before the errors below, which it may wrap
		return reaction{loss: reason.FirstObject}
	case isOtherTimeline: // until Skew has passed, some API servers may still have the old timeline
		return reaction{loss: reason.WentBack, drop: reason.Warming, minPause: Skew}
	case isInconsistent:
		return reaction{loss: reason.Contradiction, drop: reason.Warming}
	case source.Answered(err, http.StatusNotFound):
		return reaction{loss: reason.NotFound, drop: reason.Warming}
	case source.Answered(err, http.StatusNotAcceptable): // the resource does not have this representation
		return reaction{loss: reason.Other, drop: reason.Form, minPause: wait.Jitter(unlikelyRetry, 1)}
	case isForm:
		return reaction{loss: reason.Form, drop: reason.Form, minPause: wait.Jitter(unlikelyRetry, 1)}
	case isFull:
		return reaction{loss: reason.Memory, drop: reason.Memory, minPause: f.overflows.Step()}
	case isForbidden: // for longer than an API server takes to start, or without a state to keep
		return reaction{loss: reason.NotPermitted, drop: reason.NotPermitted, minPause: f.refusals.Step()}
	case errors.Is(err, errSlow): // another load would hardly be faster
		return reaction{minPause: wait.Jitter(unlikelyRetry, 1)}
	case source.Answered(err, http.StatusGone): // the upstream has forgotten later changes
		return reaction{loss: reason.Expired}
	case errors.Is(err, errReloadRequested):
		return reaction{loss: reason.Upstream}
	case errors.Is(err, errUnproven):
		return reaction{loss: reason.Upstream, minPause: f.doubts.Step()}
	}
	return reaction{}
}

func (f *feed) logFailure(ctx context.Context, err error, pause time.Duration) {
	message := "watch not resumed yet"
	if f.mustLoad {
		message = "collection cannot be followed"
	}
	f.log.Log(ctx, f.logLevel(err), message, "error", err, "attempt", f.attempt, "retry", pause.Round(time.Millisecond))
}

// loggedAttempt is the attempt at which a failure that may concern only this resource is logged, once. Many failures are over
// before.
const loggedAttempt = 4

// logLevel returns the level at which the error of a session is logged.
func (f *feed) logLevel(err error) slog.Level {
	mayConcernResource := source.IsBusy(err) && f.attempt == loggedAttempt
	switch {
	case err == nil, errors.Is(err, errUnproven):
		return slog.LevelDebug
	case source.IsUpstreamFailure(err) && !mayConcernResource:
		return slog.LevelDebug // upstream.Health logs it, once for all feeds
	case f.collection.hasState():
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// backoffs give the pauses before the next session. A request can cut a pause of retries short, but not the others.
type backoffs struct {
	retries   wait.Backoff // after a failure that a retry is likely to cure
	refusals  wait.Backoff // after a 403
	overflows wait.Backoff // after a state that does not fit
	doubts    wait.Backoff // after errUnproven
}

const (
	// unlikelyRetry is the pause after a failure that a retry is unlikely to cure.
	unlikelyRetry = 2 * time.Minute
	// maxOverflowPause bounds the pause after a state that did not fit.
	maxOverflowPause = 40 * time.Minute
	// maxDoubtPause bounds the pause before a load that is due because streams break.
	maxDoubtPause = 2 * time.Minute
	// stableAfter is the age of a state at which the backoffs overflows and doubts begin anew.
	stableAfter = maxOverflowPause
	// refusalGrace is the duration for which a state is kept after a 403. An API server that has just started refuses
	// everybody until it has read its roles, which takes less time.
	refusalGrace = 15 * time.Second
)

// The backoffs of a new feed, which takes copies.
var (
	retryBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 20 * time.Second}
	// refusalBackoff grows, because an account that lacks a right seldom gets it soon.
	refusalBackoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: unlikelyRetry}
	// overflowBackoff grows, because a load that does not fit may cost the upstream most of a whole list.
	overflowBackoff = wait.Backoff{Duration: unlikelyRetry, Factor: 2, Jitter: 0.5, Steps: 10, Cap: maxOverflowPause}
	// doubtBackoff grows, because streams may break again and again, and a load must not follow each break.
	doubtBackoff = wait.Backoff{Duration: time.Second, Factor: 4, Jitter: 0.5, Steps: 10, Cap: maxDoubtPause}

	initialBackoffs = backoffs{retries: retryBackoff, refusals: refusalBackoff, overflows: overflowBackoff, doubts: doubtBackoff}
)
