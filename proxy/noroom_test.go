package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/inflight"
	"github.com/listproxy/listproxy/proxy/internal/authntest"
	"github.com/listproxy/listproxy/proxy/internal/observetest"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/test/expect"
)

// TestNoRoom: what could be answered from memory, but for the bytes of other answers, is forwarded
// when it has waited in vain, and nothing was written. If many are, or too many wait already, it is
// refused. A watch that does not begin with the state needs no room.
func TestNoRoom(t *testing.T) {
	const streaming = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0"
	timeOut := func(*testing.T, *inflight.Bounds) {}
	spilled := func(_ *testing.T, b *inflight.Bounds) {
		for b.Spill(inflight.OverloadTimeOut) {
		}
		time.AfterFunc(4*time.Second+600*time.Millisecond, func() {
			for b.Spill(inflight.OverloadTimeOut) { // shortly before the end of the wait
			}
		})
	}
	full := func(t *testing.T, b *inflight.Bounds) {
		for i := range byte(200) {
			for range 200 { // as many of one caller as may wait, or more
				go func() { _, _ = b.AdmitBody(t.Context(), inflight.ShareKey{i}, 1, time.Now(), b.BodyWait()) }()
			}
		}
		synctest.Wait()
	}
	for name, tt := range map[string]struct {
		query   string
		happens func(*testing.T, *inflight.Bounds)
		want    reason.Reason // "": it is refused
	}{
		"a list":                           {"resourceVersion=0", timeOut, reason.NoRoom},
		"a streaming list":                 {streaming, timeOut, reason.NoRoom},
		"a list after many":                {"resourceVersion=0", spilled, ""},
		"a streaming list after many":      {streaming, spilled, ""},
		"a list where many wait":           {"resourceVersion=0", full, ""},
		"a streaming list where many wait": {streaming, full, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, bounds, out := newCrowdedWorld(t)
				tt.happens(t, bounds)
				o := w.open(t, out, tt.query, "")
				<-o.done
				refused := out.Code == http.StatusTooManyRequests && strings.Contains(out.Body.String(), "TooManyRequests")
				written := len(out.Result().Header) > 0 || out.Body.Len() > 0
				if o.why != tt.want || refused != (tt.want == "") || written != refused {
					t.Errorf("%q, %d: %s", o.why, out.Code, out.Body)
				}
			})
		})
	}
	t.Run("a watch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, _, out := newCrowdedWorld(t)
			o := w.open(t, out, "watch=true&timeoutSeconds=60&resourceVersion="+now, "")
			defer o.leave()
			w.write(1)
			synctest.Wait()
			if events := strings.Count(out.Body.String(), "\n"); events != 1 {
				t.Errorf("%d events: %q, %d: %s", events, o.why, out.Code, out.Body)
			}
		})
	})
}

// TestProofWhileTheTurnIsAwaited: a proof counts for a request that came before the proof's probe was
// sent, even if the request had no turn yet. One that came later waits for a proof of its own.
func TestProofWhileTheTurnIsAwaited(t *testing.T) {
	for name, before := range map[string]bool{"came before": true, "came later": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newModelWorld(t)
				w.load(t)
				h := w.handler
				h.Authenticator = authntest.New(t)
				h.Observer, _ = observetest.New(t, nil)
				up, err := upstream.New(w.Config())
				expect.NoError(t, err)
				h.Upstream = up
				up.Answered(authntest.Identify(h.Authenticator, "Bearer a"), false, http.MethodGet, http.StatusOK)
				chain := through(http.HandlerFunc(h.respond), kubehttp.WithRequestInfo, h.withRecord, h.withAuthentication, h.withInflight)
				var taken []inflight.Place
				for i := range byte(10) {
					place, err := h.Inflight.Admit(t.Context(), inflight.ShareKey{i}, true, nil)
					expect.NoError(t, err)
					taken = append(taken, place)
				}
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis/example.com/v1/widgets", nil)
				r.Header.Set("Authorization", "Bearer a")
				r.Header.Set("Accept", "application/json")
				out, done := httptest.NewRecorder(), make(chan struct{})
				come := func() {
					go func() { chain.ServeHTTP(out, r); close(done) }()
					synctest.Wait()
				}
				if before {
					come()
				}
				another := w.open(t, httptest.NewRecorder(), "", "")
				if <-another.done; another.why != "" {
					t.Fatalf("another is not proven: %s", another.why)
				}
				w.probeTakes = time.Second
				if !before {
					come()
				}
				begun := time.Now()
				for i := range taken {
					taken[i].Release()
				}
				<-done
				if got := out.Header().Get(kubehttp.CacheStatusHeader); got != "listproxy; hit; detail=most-recent" {
					t.Errorf("Cache-Status %q, %d: %s", got, out.Code, out.Body)
				}
				if waited := time.Since(begun); before != (waited == 0) {
					t.Errorf("it has waited for %v", waited)
				}
			})
		})
	}
}

// newCrowdedWorld returns a world with a resource in memory where others' bodies take all the room.
func newCrowdedWorld(t *testing.T) (*modelWorld, *inflight.Bounds, *httptest.ResponseRecorder) {
	t.Helper()
	w := newModelWorld(t)
	bounds, err := inflight.New(inflight.Config{Requests: 10, Bytes: 10_000, Wait: 4800 * time.Millisecond})
	expect.NoError(t, err)
	w.handler.Inflight = bounds
	w.load(t)
	for other := range byte(2) { // one may have half
		room, ok := bounds.TryAdmitBody(inflight.ShareKey{other}, 5_000)
		if !ok {
			t.Fatal("no room for another's body")
		}
		t.Cleanup(room.Release)
	}
	return w, bounds, httptest.NewRecorder()
}
