package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/test/authntest"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestNoRoom: what could be answered from memory, but for the bytes of other answers, is refused when
// it has waited in vain, so that its client comes again. A watch that does not begin with the state
// needs no room.
func TestNoRoom(t *testing.T) {
	for name, query := range map[string]string{"a list": "resourceVersion=0", "a streaming list": streaming + "&resourceVersion=0"} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w, out := newCrowdedWorld(t)
			o := w.open(t, out, query, "")
			<-o.done
			if o.why != "" || out.Code != http.StatusTooManyRequests || out.Header().Get("Retry-After") == "" {
				t.Errorf("%q, %d, %v: %s", o.why, out.Code, out.Header(), out.Body)
			}
		})
	}
	proxytest.Bubble(t, "a watch", func(t *testing.T) {
		w, out := newCrowdedWorld(t)
		o := w.open(t, out, "watch=true&timeoutSeconds=60&resourceVersion="+now, "")
		defer o.leave()
		w.write()
		synctest.Wait()
		if events := strings.Count(out.Body.String(), "\n"); events != 1 {
			t.Errorf("%d events: %q, %d: %s", events, o.why, out.Code, out.Body)
		}
	})
}

// TestProofWhileTheTurnIsAwaited: a proof counts for a request that came before the proof's probe was
// sent, even if the request had no turn yet. One that came later waits for a proof of its own.
func TestProofWhileTheTurnIsAwaited(t *testing.T) {
	for name, before := range map[string]bool{"came before": true, "came later": false} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.load(t)
			h := w.handler
			h.Authenticator = authntest.New(t)
			h.Observer, _ = observetest.New(nil)
			up, err := upstream.New(w.Config())
			expect.NoError(t, err)
			h.Upstream = up
			up.Answered(authntest.Identify(h.Authenticator, "Bearer a"), false, http.MethodGet, http.StatusOK)
			chain := through(http.HandlerFunc(h.respond), kubehttp.WithRequestInfo, h.withRecord, h.withAuthentication, h.withSeat)
			var taken []limits.Grant
			for i := range byte(10) {
				place, err := h.Limits.Requests.Acquire(t.Context(), limits.Flow{i}, 1)
				expect.NoError(t, err)
				taken = append(taken, place)
			}
			r := w.request(t.Context(), "")
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
	}
}

// newCrowdedWorld returns a world with a resource in memory where others' bodies take all the room.
func newCrowdedWorld(t *testing.T) (*modelWorld, *httptest.ResponseRecorder) {
	t.Helper()
	w := newModelWorld(t)
	w.bound(t, 10_000, 4800*time.Millisecond)
	w.load(t)
	t.Cleanup(w.takeRoom(t, 10_000))
	return w, httptest.NewRecorder()
}
