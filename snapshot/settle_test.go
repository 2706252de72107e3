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
	}{
		"the upstream is away":                 {err: errors.New("no route")},
		"and while it loads":                   {err: errors.New("no route"), loads: true, anew: true},
		"the stream has ended":                 {},
		"the history is gone":                  {err: &wire.AnswerError{Code: http.StatusGone}, anew: true},
		"a load is slow":                       {err: errSlow, loads: true, anew: true, least: unlikelyRetry},
		"the upstream wants to be spared":      {err: &wire.AnswerError{Code: http.StatusTooManyRequests, RetryAfter: 40 * time.Second}, least: 40 * time.Second},
		"the first object of an empty one":     {err: errObject, anew: true},
		"it is not permitted for a moment":     {err: forbidden, after: grace},
		"it is not permitted":                  {err: forbidden, after: refusalGrace, why: reason.NotPermitted, anew: true, least: time.Second},
		"the resource is gone":                 {err: &wire.AnswerError{Code: http.StatusNotFound}, why: reason.Warming, anew: true},
		"it was found to be out of date":       {err: errOutOfDate, anew: true},
		"a contradiction":                      {err: fmt.Errorf("watch: %w", wire.Inconsistent("twice")), why: reason.Warming, anew: true},
		"a contradiction in what is loaded":    {err: wire.Inconsistent("twice"), loads: true, anew: true},
		"what is loaded has another form":      {err: wire.ErrForm, loads: true, anew: true, least: unlikelyRetry},
		"another past":                         {err: anotherPastError{highest: 10, now: 9}, why: reason.Warming, anew: true, least: Skew},
		"a form that is unknown":               {err: wire.ErrForm, why: reason.Form, anew: true, least: unlikelyRetry},
		"no room for what happens":             {err: errFull, why: reason.Memory, anew: true, least: unlikelyRetry},
		"no room beside what is there already": {err: errFull, loads: true, why: reason.Warming, anew: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
			f := &feed{collection: c, retries: retryBackoff(), refusals: refusalBackoff(), misfits: misfitBackoff(), mustLoad: tt.loads}
			now := time.Now()
			if tt.after > 0 {
				f.settle(tt.err, now)
			}
			_, least := f.settle(tt.err, now.Add(tt.after))
			v := c.view.Load()
			if v.absence != tt.why {
				t.Errorf("there is no newest state because of %q, want %q", v.absence, tt.why)
			}
			if _, absence := v.exact(10); absence != tt.why {
				t.Errorf("the past is %q", absence)
			}
			if f.mustLoad != tt.anew || least < tt.least || tt.least == 0 && least > 0 {
				t.Errorf("loaded mustLoad: %v, want %v; after %v, want %v or more", f.mustLoad, tt.anew, least, tt.least)
			}
		})
	}
}
