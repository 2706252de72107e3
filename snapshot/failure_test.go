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

// TestHandleFailure: after an error the state stays, unless the error puts it in doubt, and is loaded anew where the
// feed cannot go on from it.
func TestHandleFailure(t *testing.T) {
	const grace = refusalGrace - 1
	forbidden := &wire.AnswerError{Code: http.StatusForbidden}
	for name, tt := range map[string]struct {
		err       error
		after     time.Duration // after the same error
		loading   bool          // another state was being loaded
		want      reason.Reason // why there is no state
		wantAnew  bool          // the state is loaded anew
		wantPause time.Duration // or longer; nobody can shorten it
		wantLoss  reason.Reason // that is counted
	}{
		"the upstream is away": {err: errors.New("no route")},
		"and while it loads":   {err: errors.New("no route"), loading: true, wantAnew: true},
		"the stream has ended": {},
		"the history is gone":  {err: &wire.AnswerError{Code: http.StatusGone}, wantAnew: true, wantLoss: reason.Expired},
		"a load is slow":       {err: errSlow, loading: true, wantAnew: true, wantPause: unlikelyRetry},
		"the upstream wants to be spared": {
			err: &wire.AnswerError{Code: http.StatusTooManyRequests, RetryAfter: 40 * time.Second}, wantPause: 40 * time.Second,
		},
		"the first object of an empty one": {err: errObject, wantAnew: true, wantLoss: reason.FirstObject},
		"it is not permitted for a moment": {err: forbidden, after: grace},
		"it is not permitted": {
			err: forbidden, after: refusalGrace, want: reason.NotPermitted, wantAnew: true, wantPause: time.Second,
			wantLoss: reason.NotPermitted,
		},
		"the resource is gone": {
			err: fmt.Errorf("asking: %w", &wire.AnswerError{Code: http.StatusNotFound}), want: reason.Warming, wantAnew: true,
			wantLoss: reason.NotFound,
		},
		"it is not to be had in this form": {
			err: &wire.AnswerError{Code: http.StatusNotAcceptable}, want: reason.Form, wantAnew: true, wantPause: unlikelyRetry,
			wantLoss: reason.Other,
		},
		"it was found to be out of date": {err: errOutOfDate, wantAnew: true, wantLoss: reason.Upstream},
		"a contradiction": {
			err: fmt.Errorf("watch: %w", wire.Inconsistent("twice")), want: reason.Warming, wantAnew: true,
			wantLoss: reason.Contradiction,
		},
		"a contradiction in what is loaded": {err: wire.Inconsistent("twice"), loading: true, wantAnew: true},
		"what is loaded has another form":   {err: wire.ErrForm, loading: true, wantAnew: true, wantPause: unlikelyRetry},
		"another timeline": {
			err: otherTimelineError{highest: 10, now: 9}, want: reason.Warming, wantAnew: true, wantPause: Skew,
			wantLoss: reason.WentBack,
		},
		"a form that is unknown": {
			err: wire.ErrForm, want: reason.Form, wantAnew: true, wantPause: unlikelyRetry, wantLoss: reason.Form,
		},
		"no room for what happens": {
			err: errFull, want: reason.Memory, wantAnew: true, wantPause: unlikelyRetry, wantLoss: reason.Memory,
		},
		"no room beside what is there already": {
			err: errFull, loading: true, want: reason.Warming, wantAnew: true, // the loss was counted when the load became due
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
			if f.mustLoad != tt.wantAnew || pause < tt.wantPause || tt.wantPause == 0 && pause > 0 {
				t.Errorf("loaded anew: %v, want %v; after %v, want %v or more", f.mustLoad, tt.wantAnew, pause, tt.wantPause)
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

// TestUnlikelyLoadsBackOff: after what did not fit, what was forbidden, and another timeline, the pauses grow up to a
// bound.
func TestUnlikelyLoadsBackOff(t *testing.T) {
	for err, longest := range map[error]time.Duration{
		errFull: longestOverflow, &wire.AnswerError{Code: http.StatusForbidden}: unlikelyRetry, errUnproven: longestDoubt,
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
				t.Errorf("%v: pause %d: %v after %v", err, i, pause, last)
			}
			last = min(pause, longest)
		}
		if last < longest {
			t.Errorf("%v: at last %v", err, last)
		}
	}
}
