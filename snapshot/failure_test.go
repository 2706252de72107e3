package snapshot

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// TestSettle: what is known stays, unless an error puts it in doubt. It is loaded anew where the feed
// cannot go on from it.
func TestSettle(t *testing.T) {
	const grace = refusalGrace - 1
	forbidden := &wire.AnswerError{Code: http.StatusForbidden}
	for name, tt := range map[string]struct {
		err   error
		after time.Duration // after the same error
		loads bool          // it was while a state was loaded beside the one that is known
		why   reason.Reason
		anew  bool
		least time.Duration // the least pause, which nobody can shorten
		loss  reason.Reason // that is counted
	}{
		"the upstream is away": {err: errors.New("no route")},
		"and while it loads":   {err: errors.New("no route"), loads: true, anew: true},
		"the stream has ended": {},
		"the history is gone":  {err: &wire.AnswerError{Code: http.StatusGone}, anew: true, loss: reason.Expired},
		"a load is slow":       {err: errSlow, loads: true, anew: true, least: unlikelyRetry},
		"the upstream wants to be spared": {
			err: &wire.AnswerError{Code: http.StatusTooManyRequests, RetryAfter: 40 * time.Second}, least: 40 * time.Second,
		},
		"the first object of an empty one": {err: errObject, anew: true, loss: reason.FirstObject},
		"it is not permitted for a moment": {err: forbidden, after: grace},
		"it is not permitted": {
			err: forbidden, after: refusalGrace, why: reason.NotPermitted, anew: true, least: time.Second,
			loss: reason.NotPermitted,
		},
		"the resource is gone": {
			err: fmt.Errorf("asking: %w", &wire.AnswerError{Code: http.StatusNotFound}), why: reason.Warming, anew: true,
			loss: reason.NotFound,
		},
		"it is not to be had in this form": {
			err: &wire.AnswerError{Code: http.StatusNotAcceptable}, why: reason.Form, anew: true, least: unlikelyRetry,
			loss: reason.Other,
		},
		"it was found to be out of date": {err: errOutOfDate, anew: true, loss: reason.Upstream},
		"a contradiction": {
			err: fmt.Errorf("watch: %w", wire.Inconsistent("twice")), why: reason.Warming, anew: true,
			loss: reason.Contradiction,
		},
		"a contradiction in what is loaded": {err: wire.Inconsistent("twice"), loads: true, anew: true},
		"what is loaded has another form":   {err: wire.ErrForm, loads: true, anew: true, least: unlikelyRetry},
		"another timeline": {
			err: otherTimelineError{highest: 10, now: 9}, why: reason.Warming, anew: true, least: Skew, loss: reason.WentBack,
		},
		"a form that is unknown":               {err: wire.ErrForm, why: reason.Form, anew: true, least: unlikelyRetry, loss: reason.Form},
		"no room for what happens":             {err: errFull, why: reason.Memory, anew: true, least: unlikelyRetry, loss: reason.Memory},
		"no room beside what is there already": {err: errFull, loads: true, why: reason.Warming, anew: true, loss: reason.Memory},
	} {
		t.Run(name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
			f := &feed{collection: c, retries: retryBackoff(), refusals: refusalBackoff(), overflows: overflowBackoff(), mustLoad: tt.loads}
			c.life.loaded()
			now := time.Now()
			if tt.after > 0 {
				f.handleFailure(tt.err, now)
			}
			_, least := f.handleFailure(tt.err, now.Add(tt.after))
			v := c.view.Load()
			if v.unavailable != tt.why {
				t.Errorf("there is no newest state because of %q, want %q", v.unavailable, tt.why)
			}
			if _, unavailable := v.exact(moment{}, 10); unavailable != tt.why {
				t.Errorf("the past is %q", unavailable)
			}
			if f.mustLoad != tt.anew || least < tt.least || tt.least == 0 && least > 0 {
				t.Errorf("loaded anew: %v, want %v; after %v, want %v or more", f.mustLoad, tt.anew, least, tt.least)
			}
			if losses := c.life.counts.stats().Losses; (len(losses) > 0) != (tt.loss != "") || tt.loss != "" && losses[tt.loss] != 1 {
				t.Errorf("counted: %v, want one of %q", losses, tt.loss)
			}
		})
	}
}

// TestWhatIsUnlikelyIsAskedForEverLessOften: what did not fit, what was forbidden, and what had another timeline.
func TestWhatIsUnlikelyIsAskedForEverLessOften(t *testing.T) {
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
