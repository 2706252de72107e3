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

// TestHandleFailure: handleFailure keeps the state after an error, unless the error casts doubt on it. The next session loads
// a state if the feed cannot go on from the known one, or if a load failed.
func TestHandleFailure(t *testing.T) {
	const withinGrace = refusalGrace - time.Nanosecond
	forbidden := &wire.AnswerError{Code: http.StatusForbidden}
	for name, tt := range map[string]struct {
		err             error
		after           time.Duration // the time since the same error occurred first; 0: it is the first one
		loading         bool          // a load beside the known state fails; if false, the stream fails
		wantUnavailable reason.Reason // why there is no state then; None: there is one
		wantLoad        bool          // the next session loads a state
		wantMinPause    time.Duration // the pause that no request shortens; 0: none
		wantLoss        reason.Reason // the cause that is counted; None: no loss is counted
	}{
		"the upstream is away":               {err: errors.New("no route")},
		"the upstream is away during a load": {err: errors.New("no route"), loading: true, wantLoad: true},
		"the stream has ended at once":       {},
		"the watch is answered 410":          {err: &wire.AnswerError{Code: http.StatusGone}, wantLoad: true, wantLoss: reason.Expired},
		"a load is slow":                     {err: errSlow, loading: true, wantLoad: true, wantMinPause: lastingPause},
		"429 with Retry-After": {
			err: &wire.AnswerError{Code: http.StatusTooManyRequests, RetryAfter: 40 * time.Second}, wantMinPause: 40 * time.Second,
		},
		"an empty collection gets its first object": {err: errFirstObject, wantLoad: true, wantLoss: reason.FirstObject},
		"403 for a moment":                          {err: forbidden, after: withinGrace},
		"403 for longer than the grace": {
			err: forbidden, after: refusalGrace,
			wantUnavailable: reason.NotPermitted, wantLoad: true, wantMinPause: time.Second, wantLoss: reason.NotPermitted,
		},
		"404": {
			err:             fmt.Errorf("asking: %w", &wire.AnswerError{Code: http.StatusNotFound}),
			wantUnavailable: reason.Warming, wantLoad: true, wantLoss: reason.NotFound,
		},
		"406": {
			err:             &wire.AnswerError{Code: http.StatusNotAcceptable},
			wantUnavailable: reason.Form, wantLoad: true, wantMinPause: lastingPause, wantLoss: reason.Other,
		},
		"a reload was requested": {err: errReloadRequested, wantLoad: true, wantLoss: reason.Upstream},
		"an event contradicts the state": {
			err:             fmt.Errorf("watch: %w", wire.Inconsistent("twice")),
			wantUnavailable: reason.Warming, wantLoad: true, wantLoss: reason.Contradiction,
		},
		"a load contradicts itself":  {err: wire.Inconsistent("twice"), loading: true, wantLoad: true},
		"a load has an unknown form": {err: wire.ErrForm, loading: true, wantLoad: true, wantMinPause: lastingPause},
		"another timeline": {
			err:             errOtherTimeline,
			wantUnavailable: reason.Warming, wantLoad: true, wantMinPause: Skew, wantLoss: reason.WentBack,
		},
		"an event has an unknown form": {
			err:             wire.ErrForm,
			wantUnavailable: reason.Form, wantLoad: true, wantMinPause: lastingPause, wantLoss: reason.Form,
		},
		"a change does not fit": {
			err:             errFull,
			wantUnavailable: reason.Memory, wantLoad: true, wantMinPause: lastingPause, wantLoss: reason.Memory,
		},
		"a load does not fit beside the known state": {
			// The loss was counted when the load became due.
			err: errFull, loading: true, wantUnavailable: reason.Warming, wantLoad: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
			f := &feed{collection: c, mustLoad: tt.loading, backoffs: initialBackoffs}
			now := time.Now()
			if tt.after > 0 {
				f.handleFailure(tt.err, now)
			}
			_, minPause := f.handleFailure(tt.err, now.Add(tt.after))
			v := c.view.Load()
			if v.unavailable != tt.wantUnavailable {
				t.Errorf("the newest state: got reason %q, want %q", v.unavailable, tt.wantUnavailable)
			}
			if _, unavailable := v.exact(moment{}, 10); unavailable != tt.wantUnavailable {
				t.Errorf("the state at 10: got reason %q, want %q", unavailable, tt.wantUnavailable)
			}
			if f.mustLoad != tt.wantLoad {
				t.Errorf("the next session loads: got %t, want %t", f.mustLoad, tt.wantLoad)
			}
			if minPause < tt.wantMinPause {
				t.Errorf("got a pause of at least %v, want at least %v", minPause, tt.wantMinPause)
			}
			if tt.wantMinPause == 0 && minPause > 0 {
				t.Errorf("got a pause of at least %v, want any", minPause)
			}
			expectLossCause(t, c, tt.wantLoss)
		})
	}
}

// TestUnlikelyLoadsBackOff: handleFailure returns pauses that grow up to a bound, after errors that will hardly be over soon.
func TestUnlikelyLoadsBackOff(t *testing.T) {
	for name, tt := range map[string]struct {
		err     error
		longest time.Duration // without the jitter
	}{
		"a state that does not fit":      {err: errFull, longest: maxFullPause},
		"403":                            {err: &wire.AnswerError{Code: http.StatusForbidden}, longest: lastingPause},
		"a timeline that was not proven": {err: errUnproven, longest: maxUnprovenPause},
	} {
		t.Run(name, func(t *testing.T) {
			f := &feed{
				collection: liveCollection(Limits{History: time.Minute, Staleness: time.Minute}), backoffs: initialBackoffs,
			}
			f.mustLoad = true
			f.collection.drop(reason.Warming)
			withJitter := tt.longest + tt.longest/2
			last := time.Duration(0)
			for i := range 10 {
				_, pause := f.handleFailure(tt.err, time.Now())
				if pause < last || pause > withJitter {
					t.Errorf("pause %d: got %v, want %v to %v", i, pause, last, withJitter)
				}
				last = min(pause, tt.longest)
			}
			if last < tt.longest {
				t.Errorf("the last pause: got %v, want at least %v", last, tt.longest)
			}
		})
	}
}
