package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// TestHandleFailure: after an error the state stays, unless the error puts the state in doubt. It is loaded anew if the
// feed cannot go on from it.
func TestHandleFailure(t *testing.T) {
	const grace = refusalGrace - 1
	forbidden := &wire.AnswerError{Code: http.StatusForbidden}
	for name, tt := range map[string]struct {
		err       error
		after     time.Duration // since the same error; 0: it is the first one
		loading   bool          // the error is of a load beside the known state
		want      reason.Reason // why there is no state then; None if there is one
		wantLoad  bool          // the next session loads a state
		wantPause time.Duration // the least pause, or a longer one; 0: there is none
		wantLoss  reason.Reason // the cause that is counted; None if none is
	}{
		"the upstream is away":               {err: errors.New("no route")},
		"the upstream is away during a load": {err: errors.New("no route"), loading: true, wantLoad: true},
		"the stream has ended at once":       {},
		"the watch is answered 410":          {err: &wire.AnswerError{Code: http.StatusGone}, wantLoad: true, wantLoss: reason.Expired},
		"a load is slow":                     {err: errSlow, loading: true, wantLoad: true, wantPause: unlikelyRetry},
		"429 with Retry-After": {
			err: &wire.AnswerError{Code: http.StatusTooManyRequests, RetryAfter: 40 * time.Second}, wantPause: 40 * time.Second,
		},
		"an empty collection gets its first object": {err: errObject, wantLoad: true, wantLoss: reason.FirstObject},
		"403 for a moment":                          {err: forbidden, after: grace},
		"403 for longer than the grace": {
			err: forbidden, after: refusalGrace, want: reason.NotPermitted, wantLoad: true, wantPause: time.Second,
			wantLoss: reason.NotPermitted,
		},
		"404": {
			err: fmt.Errorf("asking: %w", &wire.AnswerError{Code: http.StatusNotFound}), want: reason.Warming, wantLoad: true,
			wantLoss: reason.NotFound,
		},
		"406": {
			err: &wire.AnswerError{Code: http.StatusNotAcceptable}, want: reason.Form, wantLoad: true, wantPause: unlikelyRetry,
			wantLoss: reason.Other,
		},
		"a reload was requested": {err: errReloadRequested, wantLoad: true, wantLoss: reason.Upstream},
		"an event contradicts the state": {
			err: fmt.Errorf("watch: %w", wire.Inconsistent("twice")), want: reason.Warming, wantLoad: true,
			wantLoss: reason.Contradiction,
		},
		"a load contradicts itself":  {err: wire.Inconsistent("twice"), loading: true, wantLoad: true},
		"a load has an unknown form": {err: wire.ErrForm, loading: true, wantLoad: true, wantPause: unlikelyRetry},
		"another timeline": {
			err: otherTimelineError{before: 10, got: 9}, want: reason.Warming, wantLoad: true, wantPause: Skew,
			wantLoss: reason.WentBack,
		},
		"an event has an unknown form": {
			err: wire.ErrForm, want: reason.Form, wantLoad: true, wantPause: unlikelyRetry, wantLoss: reason.Form,
		},
		"a change does not fit": {
			err: errFull, want: reason.Memory, wantLoad: true, wantPause: unlikelyRetry, wantLoss: reason.Memory,
		},
		"a load does not fit beside the known state": {
			err: errFull, loading: true, want: reason.Warming, wantLoad: true, // the loss was counted when the load became due
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
			f := &feed{
				collection: c, mustLoad: tt.loading,
				retries: retryBackoff(), refusals: refusalBackoff(), overflows: overflowBackoff(),
			}
			now := time.Now()
			if tt.after > 0 {
				f.handleFailure(tt.err, now)
			}
			_, pause := f.handleFailure(tt.err, now.Add(tt.after))
			v := c.view.Load()
			if v.unavailable != tt.want {
				t.Errorf("there is no newest state because of %q, want %q", v.unavailable, tt.want)
			}
			if _, unavailable := v.exact(moment{}, 10); unavailable != tt.want {
				t.Errorf("there is no state at 10 because of %q, want %q", unavailable, tt.want)
			}
			if f.mustLoad != tt.wantLoad {
				t.Errorf("the next session loads: %v, want %v", f.mustLoad, tt.wantLoad)
			}
			if pause < tt.wantPause || tt.wantPause == 0 && pause > 0 {
				t.Errorf("the least pause is %v, want %v or more", pause, tt.wantPause)
			}
			wantLosses := map[reason.Reason]uint64{}
			if tt.wantLoss != "" {
				wantLosses[tt.wantLoss] = 1
			}
			if losses := c.counts.lossesByCause(); !maps.Equal(losses, wantLosses) {
				t.Errorf("counted losses %v, want %v", losses, wantLosses)
			}
		})
	}
}

// TestUnlikelyLoadsBackOff: after a state that did not fit, a 403, and a timeline that was not proven, the pauses grow
// up to a bound.
func TestUnlikelyLoadsBackOff(t *testing.T) {
	for err, longest := range map[error]time.Duration{
		errFull: maxOverflowPause, &wire.AnswerError{Code: http.StatusForbidden}: unlikelyRetry, errUnproven: maxDoubtPause,
	} {
		f := &feed{
			collection: liveCollection(Limits{History: time.Minute, Staleness: time.Minute}),
			retries:    retryBackoff(), overflows: overflowBackoff(), refusals: refusalBackoff(), doubts: doubtBackoff(),
		}
		f.drop(reason.Warming, err)
		last := time.Duration(0)
		for i := range 10 {
			_, pause := f.handleFailure(err, time.Now())
			if pause < last || pause > 3*longest/2 {
				t.Errorf("%v: pause %d is %v, want %v to %v", err, i, pause, last, 3*longest/2)
			}
			last = min(pause, longest)
		}
		if last < longest {
			t.Errorf("%v: the last pause is %v, want %v", err, last, longest)
		}
	}
}
