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
	// errFirstObject means that an empty collection got its first object, and the form of items could not be learned from it.
	errFirstObject = errors.New("the first object of an empty collection: its form could not be learned")
	// errReloadRequested means that [Collection.requestReload] was called: the API servers may write the state in other bytes.
	errReloadRequested = errors.New("the API servers write it differently now")
	// errUnproven means that a stream could go on, but nothing shows that the upstream has the same timeline.
	errUnproven = errors.New("the upstream may have another timeline")
)

// reaction is what a feed does after a failure. X and Y stand for any reasons but None.
//
//	loss   drop   the known state                                             the next session
//	None   None   is kept, and given until it is too old                      resumes the stream, unless a load is due
//	X      None   is given until a load is complete                           loads
//	X      Y      is dropped, and requests get Y until a load is complete     loads
type reaction struct {
	// loss is the cause under which the loss of the known state is counted.
	loss reason.Reason
	// drop is the reason that requests get once the known state is dropped.
	drop reason.Reason
	// backoff gives a pause that no request shortens. With nil, backoffs.retries gives the pause, and a request can cut it
	// short, since a retry is likely to cure the failure.
	backoff *wait.Backoff
}

// handleFailure does to the state what an error requires, and returns how long the feed pauses. A request can shorten the
// pause, but not below minimum. err is nil if the stream ended normally, but too soon (within minStreamLife).
func (f *feed) handleFailure(err error, now time.Time) (pause, minimum time.Duration) {
	if !source.Answered(err, http.StatusForbidden) {
		f.forbiddenSince = time.Time{}
	} else if f.forbiddenSince.IsZero() {
		f.forbiddenSince = now
	}
	r := f.reactionTo(err, now)
	if r.loss != reason.None {
		if !f.mustLoad { // if a load is due already, its loss has been counted
			f.collection.counts.addLoss(r.loss)
		}
		f.mustLoad = true
	}
	if r.drop != reason.None {
		f.collection.drop(r.drop)
	}
	if r.backoff != nil {
		pause = source.RetryPause(r.backoff.Step(), err)
		return pause, pause
	}
	minimum = source.RetryPause(0, err)
	return max(minimum, f.retries.Step()), minimum
}

// reactionTo returns what an error requires. It changes nothing.
func (f *feed) reactionTo(err error, now time.Time) reaction {
	_, isInconsistent := errors.AsType[wire.InconsistencyError](err)
	isForm := errors.Is(err, wire.ErrForm)
	isFull := errors.Is(err, errFull)
	hasState := f.collection.hasState()
	// A 403 counts after refusalGrace, or if there is no state to keep.
	isLastingRefusal := source.Answered(err, http.StatusForbidden) && (now.Sub(f.forbiddenSince) >= refusalGrace || !hasState)
	// If a load beside the known state has failed, the failure concerns only the new state.
	isReload := f.mustLoad && hasState
	switch {
	case isReload && isInconsistent:
		return reaction{}
	case isReload && isForm:
		return reaction{backoff: &f.unlikely}
	case isReload && isFull: // drop the known state to make room; lists then wait for the next load
		return reaction{loss: reason.Memory, drop: reason.Warming}
	case errors.Is(err, errFirstObject): // before the errors below, which it may wrap
		return reaction{loss: reason.FirstObject}
	case errors.Is(err, errOtherTimeline): // until Skew has passed, some API servers may still have the old timeline
		return reaction{loss: reason.WentBack, drop: reason.Warming, backoff: &wait.Backoff{Duration: Skew}}
	case isInconsistent:
		return reaction{loss: reason.Contradiction, drop: reason.Warming}
	case source.Answered(err, http.StatusNotFound):
		return reaction{loss: reason.NotFound, drop: reason.Warming}
	case source.Answered(err, http.StatusNotAcceptable): // the resource does not have this representation
		return reaction{loss: reason.Other, drop: reason.Form, backoff: &f.unlikely}
	case isForm:
		return reaction{loss: reason.Form, drop: reason.Form, backoff: &f.unlikely}
	case isFull:
		return reaction{loss: reason.Memory, drop: reason.Memory, backoff: &f.overflows}
	case isLastingRefusal:
		return reaction{loss: reason.NotPermitted, drop: reason.NotPermitted, backoff: &f.refusals}
	case errors.Is(err, errSlow): // another load would hardly be faster
		return reaction{backoff: &f.unlikely}
	case source.Answered(err, http.StatusGone): // the upstream has forgotten changes after the known state
		return reaction{loss: reason.Expired}
	case errors.Is(err, errReloadRequested):
		return reaction{loss: reason.Upstream}
	case errors.Is(err, errUnproven):
		return reaction{loss: reason.Upstream, backoff: &f.doubts}
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
