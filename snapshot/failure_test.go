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

// A session of a feed ends with an error, or with nil. It has loaded the state, or read the stream. handleFailure decides what
// becomes of the known state, whether the next session loads a state or resumes the stream, and how long the feed pauses
// before.

// TestHandleFailure: handleFailure keeps the known state after an error, unless the error casts doubt on the state. The next
// session loads a state if the feed cannot go on from the known one, or if a load has failed.
func TestHandleFailure(t *testing.T) {
	const withinGrace = refusalGrace - time.Nanosecond
	forbidden := &wire.AnswerError{Code: http.StatusForbidden}
	for name, tt := range map[string]struct {
		err         error         // nil: the stream ended at its timeout, but too soon
		repeatAfter time.Duration // the same error occurs again after this time; 0: it occurs once
		ofReload    bool          // the error is of a load that would have replaced the known state; false: it is of the stream

		wantUnavailable reason.Reason // why there is no state then; None: the known state is kept
		wantLoad        bool          // the next session loads a state
		wantMinPause    time.Duration // the pause that no request shortens; 0: a request may end it after minStreamLife
		wantLoss        reason.Reason // the cause of the loss that is counted; None: no loss is counted
	}{
		"the upstream is away":               {err: errors.New("no route")},
		"the upstream is away during a load": {err: errors.New("no route"), ofReload: true, wantLoad: true},
		"the stream has ended at once":       {err: nil},
		"the watch is answered 410":          {err: &wire.AnswerError{Code: http.StatusGone}, wantLoad: true, wantLoss: reason.Expired},
		"a load is slow":                     {err: errSlow, ofReload: true, wantLoad: true, wantMinPause: lastingPause},
		"429 with Retry-After": {
			err: &wire.AnswerError{Code: http.StatusTooManyRequests, RetryAfter: 40 * time.Second}, wantMinPause: 40 * time.Second,
		},
		"the form of the first object of an empty collection cannot be learned": {
			err: errFirstObject, wantLoad: true, wantLoss: reason.FirstObject,
		},
		"403 for less than refusalGrace": {err: forbidden, repeatAfter: withinGrace},
		"403 for refusalGrace": {
			err: forbidden, repeatAfter: refusalGrace,
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
		"a load contradicts itself":  {err: wire.Inconsistent("twice"), ofReload: true, wantLoad: true},
		"a load has an unknown form": {err: wire.ErrForm, ofReload: true, wantLoad: true, wantMinPause: lastingPause},
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
			err: errFull, ofReload: true,
			wantUnavailable: reason.Warming, wantLoad: true, wantLoss: reason.None, // a loss was counted when the load became due
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
			f := &feed{collection: c, mustLoad: tt.ofReload, backoffs: initialBackoffs}
			now := time.Now()
			if tt.repeatAfter > 0 {
				f.handleFailure(tt.err, now)
			}
			_, minPause := f.handleFailure(tt.err, now.Add(tt.repeatAfter))
			v := c.view.Load()
			if v.unavailable != tt.wantUnavailable {
				t.Errorf("the newest state: got reason %q, want %q", v.unavailable, tt.wantUnavailable)
			}
			if _, unavailable := v.exact(moment{}, liveAt); unavailable != tt.wantUnavailable {
				t.Errorf("the loaded state: got reason %q, want %q", unavailable, tt.wantUnavailable)
			}
			if f.mustLoad != tt.wantLoad {
				t.Errorf("the next session loads: got %t, want %t", f.mustLoad, tt.wantLoad)
			}
			if minPause < tt.wantMinPause {
				t.Errorf("got a pause of at least %v, want at least %v", minPause, tt.wantMinPause)
			}
			if tt.wantMinPause == 0 && minPause > 0 {
				t.Errorf("got a pause of at least %v, want one that a request may end at once", minPause)
			}
			expectLossCause(t, c, tt.wantLoss)
		})
	}
}

// TestUnlikelyLoadsBackOff: if an error is unlikely to be over soon, and occurs again and again, handleFailure returns pauses
// that grow up to a bound. A random part of up to a half (the jitter) is added to each pause.
func TestUnlikelyLoadsBackOff(t *testing.T) {
	for name, tt := range map[string]struct {
		err         error
		wantLongest time.Duration // without the jitter
	}{
		"a state does not fit":       {err: errFull, wantLongest: maxFullPause},
		"403":                        {err: &wire.AnswerError{Code: http.StatusForbidden}, wantLongest: lastingPause},
		"the timeline is not proven": {err: errUnproven, wantLongest: maxUnprovenPause},
	} {
		t.Run(name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
			c.drop(reason.Warming)
			f := &feed{collection: c, mustLoad: true, backoffs: initialBackoffs}
			most := tt.wantLongest + tt.wantLongest/2
			least := time.Duration(0) // the least that the next pause may be
			for i := range 10 {
				_, pause := f.handleFailure(tt.err, time.Now())
				if pause < least || pause > most {
					t.Errorf("pause %d: got %v, want %v to %v", i, pause, least, most)
				}
				least = min(pause, tt.wantLongest) // at the bound, the next pause may have less jitter than this one
			}
			if least < tt.wantLongest {
				t.Errorf("the last pause: got %v, want at least %v", least, tt.wantLongest)
			}
		})
	}
}
