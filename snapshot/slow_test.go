package snapshot

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// meddled is an upstream before which somebody delays or replaces some answers.
type meddled struct {
	*upstream
	// meddle returns how long an answer is held back, and another in its place if it is not nil. It
	// is called without the upstream's lock.
	meddle func(*http.Request) (hold time.Duration, instead *http.Response)
}

// RoundTrip implements http.RoundTripper.
func (m meddled) RoundTrip(r *http.Request) (*http.Response, error) {
	hold, instead := m.meddle(r)
	if !clock.Sleep(r.Context(), hold) {
		return nil, r.Context().Err()
	}
	if instead != nil {
		return instead, nil
	}
	return m.upstream.RoundTrip(r)
}

// roundTrip is an upstream that is a function.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answered is an upstream's answer.
func answered(r *http.Request, code int, body string) *http.Response {
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {media.JSONType}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}
}

// tooBusy is an answer of an API server.
func tooBusy(r *http.Request, code int) *http.Response {
	answer := answered(r, code, aStatus)
	answer.Header.Set("Retry-After", "1")
	return answer
}

// busy says when to come again.
func busy(r *http.Request, after string) *http.Response {
	answer := tooBusy(r, http.StatusTooManyRequests)
	answer.Header.Set("Retry-After", after)
	return answer
}

// kindOf says what a request of a feed is.
func kindOf(r *http.Request) string {
	switch q := r.URL.Query(); {
	case q.Get("sendInitialEvents") != "":
		return "load"
	case q.Get("watch") != "" && q.Get("fieldSelector") == "":
		return "watch"
	case q.Get("fieldSelector") != "" && q.Get("resourceVersionMatch") == "":
		return "probe"
	}
	return "list"
}

const expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 6 (8)","reason":"Expired","code":410}}` + "\n"

// TestTroubleIsNotLoss: an API server that is slow, or refuses some requests, costs no second load, and
// nothing of the history.
func TestTroubleIsNotLoss(t *testing.T) {
	for name, tt := range map[string]struct {
		// What happens to which requests ("": all), in which time, and to which of them.
		kind     string
		from, to time.Duration
		when     func(n int) bool
		hold     time.Duration
		code     int  // instead of an answer
		cuts     bool // the first watch breaks
	}{
		"one slow probe":                       {kind: "probe", from: time.Minute, to: 80 * time.Second, hold: probeTimeout / 2},
		"a probe without an answer":            {kind: "probe", from: time.Minute, to: 80 * time.Second, hold: time.Hour},
		"429 when a watch is opened again":     {kind: "watch", when: func(n int) bool { return n%3 == 1 }, code: http.StatusTooManyRequests},
		"503 when a watch is opened again":     {kind: "watch", when: func(n int) bool { return n%6 < 4 }, code: http.StatusServiceUnavailable},
		"watches answered after six seconds":   {kind: "watch", hold: 6 * time.Second},
		"everything is late by twenty seconds": {from: time.Minute, to: 40 * time.Minute, hold: 20 * time.Second},
		"half of everything is refused": {
			from: time.Second, to: 40 * time.Minute, when: func(n int) bool { return n%2 == 0 }, code: http.StatusTooManyRequests, cuts: true,
		},
		"a watch that breaks": {cuts: true},
	} {
		inBubble(t, name, func(t *testing.T) {
			u := &upstream{revision: 7, changes: true}
			u.watch = func(from uint64) []string {
				switch {
				case from < 8:
					return []string{expired, cut}
				case tt.cuts && u.watches == 1:
					return []string{cut}
				}
				return []string{bookmark(9, "")}
			}
			begun, n := time.Now(), map[string]int{}
			c := fed(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
				u.mu.Lock()
				defer u.mu.Unlock()
				kind, since := kindOf(r), time.Since(begun)
				n[kind]++
				switch {
				case tt.kind != "" && tt.kind != kind, since < tt.from, tt.to > 0 && since >= tt.to, tt.when != nil && !tt.when(n[kind]):
					return 0, nil
				case tt.code > 0:
					return 0, tooBusy(r, tt.code)
				}
				return tt.hold, nil
			}}, time.Hour)
			u.mu.Lock()
			defer u.mu.Unlock()
			if u.loads != 1 || u.watches < 4 {
				t.Errorf("loaded %d times, with %d watches", u.loads, u.watches)
			}
			if got := c.life.counts.stats(); len(got.Losses) > 0 {
				t.Errorf("got %+v", got)
			}
			if _, absence := c.Exact(t.Context(), 9); absence != reason.None {
				t.Errorf("what was loaded: %q", absence)
			}
			if _, absence := c.Latest(t.Context(), 0); absence != reason.None {
				t.Errorf("in the end: %q", absence)
			}
		})
	}
}

// TestStreamingListsThatFail: the state is loaded page by page.
func TestStreamingListsThatFail(t *testing.T) {
	status := func(code int) string {
		return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","code":%d}`, code)
	}
	for name, tt := range map[string]struct {
		code  int
		body  string
		pages bool
		// large: it fails only for the resource's own state.
		large bool
	}{
		"422":          {code: http.StatusUnprocessableEntity, body: status(422), pages: true},
		"500":          {code: http.StatusInternalServerError, body: status(500), pages: true},
		"in the event": {code: http.StatusOK, body: `{"type":"ERROR","object":` + status(500) + "}\n", pages: true},
		"504, also":    {code: http.StatusOK, body: `{"type":"ERROR","object":` + status(504) + "}\n", pages: true},
		"it ends":      {code: http.StatusOK, pages: true, large: true},
		"429":          {code: http.StatusTooManyRequests, body: status(429)},
		"403":          {code: http.StatusForbidden, body: status(403)},
	} {
		inBubble(t, name, func(t *testing.T) {
			u := &upstream{revision: 9, watch: func(uint64) []string { return nil }}
			c := fedWith(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
				if kindOf(r) != "load" || tt.large && r.URL.Query().Has("fieldSelector") {
					return 0, nil
				}
				return 0, answered(r, tt.code, tt.body)
			}}, time.Minute, Settings{Watches: true}, 90*time.Second)
			snap, absence := c.Latest(t.Context(), 0)
			if (absence == reason.None) != tt.pages {
				t.Errorf("the state is %q", absence)
			}
			// Watches from a revision can be followed, and streaming lists are the upstream's.
			if form := snap.WatchForm(); tt.pages && !tt.large && (form == nil || form.InitialEnd != nil) {
				t.Errorf("watches have the form %+v", form)
			}
		})
	}
}

// TestWhatCannotFitIsAskedForEverLessOften.
func TestWhatCannotFitIsAskedForEverLessOften(t *testing.T) {
	f := &feed{collection: liveCollection(Limits{History: time.Minute, Staleness: time.Minute}), retries: retryBackoff(), misfits: misfitBackoff()}
	last := time.Duration(0)
	for i := range 6 {
		_, pause := f.settle(errFull, time.Now())
		if pause < last || pause < unlikelyRetry || pause > 3*longestMisfit/2 {
			t.Errorf("pause %d: %v after %v", i, pause, last)
		}
		last = min(pause, longestMisfit)
	}
	if last < longestMisfit {
		t.Errorf("at last %v", last)
	}
}
