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
	// errUnproven means that a stream could go on, but nothing shows that the upstream has the same timeline. (A timeline is
	// one history of etcd. A restored backup begins another one.)
	errUnproven = errors.New("the upstream may have another timeline")
)

// reaction is what a feed does after a failed session. (A session loads a state if necessary, and reads one stream.) Examples:
//
//	reaction                                      the known state                  the next session
//	{}                                            stays                            resumes the stream, or loads if a load is due
//	{lossCause: Expired}                          stays until a load is complete   loads
//	{lossCause: NotFound, unavailable: Warming}   is dropped at once               loads
type reaction struct {
	// lossCause is the cause under which the loss of the known state is counted; None if there is no loss.
	lossCause reason.Reason
	// unavailable is the reason that requests get until a load is complete; None if the known state stays until then.
	unavailable reason.Reason
	// backoff gives the pause before the next session, which no request shortens. If backoff is nil, backoffs.retry gives the
	// pause. Then a request can shorten it, since a retry is likely to succeed.
	backoff *wait.Backoff
}

// handleFailure handles the error of a session: it counts a loss and drops the known state if the error requires it. err is nil
// if the stream ended without an error, but within minStreamLife (1 s). handleFailure returns the pause before the next
// session. A request can shorten the pause, but not below minimum.
func (f *feed) handleFailure(err error, now time.Time) (pause, minimum time.Duration) {
	isForbidden := source.Answered(err, http.StatusForbidden)
	if !isForbidden {
		f.forbiddenSince = time.Time{}
	} else if f.forbiddenSince.IsZero() {
		f.forbiddenSince = now
	}
	r := f.reactionTo(err, now)
	if r.lossCause != reason.None {
		if !f.mustLoad { // if a load is due already, its loss has been counted
			f.collection.counts.addLoss(r.lossCause)
		}
		f.mustLoad = true
	}
	if r.unavailable != reason.None {
		f.collection.drop(r.unavailable)
	}
	if r.backoff != nil {
		pause = source.RetryPause(r.backoff.Step(), err)
		return pause, pause
	}
	minimum = source.RetryPause(0, err) // the upstream's Retry-After, if it sent one
	return max(minimum, f.backoffs.retry.Step()), minimum
}

// reactionTo returns what the error of a session requires. It changes nothing. The order of the cases matters:
//
//   - errFirstObject comes before all other errors, since it may wrap one of them.
//   - Some errors have two cases. The first is for a reload that failed: a state is known, and the session was to replace it.
//     The second is for any other session.
func (f *feed) reactionTo(err error, now time.Time) reaction {
	_, isInconsistent := errors.AsType[wire.InconsistencyError](err)
	isForm := errors.Is(err, wire.ErrForm)
	isFull := errors.Is(err, errFull)
	reloadFailed := f.mustLoad && f.collection.hasState() // which says nothing against the known state
	switch {
	case errors.Is(err, errFirstObject):
		return reaction{lossCause: reason.FirstObject}
	case isInconsistent && reloadFailed:
		return reaction{}
	case isInconsistent:
		return reaction{lossCause: reason.Contradiction, unavailable: reason.Warming}
	case isForm && reloadFailed:
		return reaction{backoff: &f.backoffs.lasting}
	case isForm:
		return reaction{lossCause: reason.Form, unavailable: reason.Form, backoff: &f.backoffs.lasting}
	case isFull && reloadFailed: // the known state is dropped to make room, and lists wait for the next load
		return reaction{lossCause: reason.Memory, unavailable: reason.Warming}
	case isFull:
		return reaction{lossCause: reason.Memory, unavailable: reason.Memory, backoff: &f.backoffs.full}
	}
	return f.reactionToUpstream(err, now)
}

// reactionToUpstream is reactionTo for an error that concerns the upstream, not the content or the size of a state.
func (f *feed) reactionToUpstream(err error, now time.Time) reaction {
	isForbidden := source.Answered(err, http.StatusForbidden)
	// For 15 s after the first 403, a known state is kept (see refusalGrace).
	inGrace := f.collection.hasState() && now.Sub(f.forbiddenSince) < refusalGrace
	switch {
	case isForbidden && inGrace:
		return reaction{}
	case isForbidden:
		return reaction{lossCause: reason.NotPermitted, unavailable: reason.NotPermitted, backoff: &f.backoffs.forbidden}
	case source.Answered(err, http.StatusNotFound):
		return reaction{lossCause: reason.NotFound, unavailable: reason.Warming}
	case source.Answered(err, http.StatusNotAcceptable): // the resource does not have this representation
		return reaction{lossCause: reason.Other, unavailable: reason.Form, backoff: &f.backoffs.lasting}
	case source.Answered(err, http.StatusGone): // the upstream has forgotten changes after the known state
		return reaction{lossCause: reason.Expired}
	case errors.Is(err, errOtherTimeline): // until Skew (10 s) has passed, some API servers may still have the old timeline
		return reaction{lossCause: reason.WentBack, unavailable: reason.Warming, backoff: &wait.Backoff{Duration: Skew}}
	case errors.Is(err, errUnproven):
		return reaction{lossCause: reason.Upstream, backoff: &f.backoffs.unproven}
	case errors.Is(err, errReloadRequested):
		return reaction{lossCause: reason.Upstream}
	case errors.Is(err, errSlow): // another load would hardly be faster
		return reaction{backoff: &f.backoffs.lasting}
	}
	return reaction{}
}

// logFailure logs the error of a session, and the pause after it.
func (f *feed) logFailure(ctx context.Context, err error, pause time.Duration) {
	message := "watch not resumed yet"
	if f.mustLoad {
		message = "collection cannot be followed"
	}
	f.log.Log(ctx, f.logLevel(err), message, "error", err, "attempt", f.attempt, "retry", pause.Round(time.Millisecond))
}

// loggedAttempt is the attempt at which a failure that may concern only this resource is logged above the debug level. Earlier
// attempts are not, since many failures are over by the fourth. Later ones are not, so that it is logged once.
const loggedAttempt = 4

// logLevel returns the level at which the error of a session is logged. The first case that applies counts.
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
