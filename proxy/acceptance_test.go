package proxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/proxy/internal/authntest"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
)

// newcomers is what became of requests that came while a first one with the same token was with the
// upstream.
type newcomers struct {
	// Accepted: the caller was known when they went on; Unknown: not.
	Accepted, Unknown int
	// Waited is how long all of them took to go on.
	Waited time.Duration
}

// TestRequestsOfANewTokenAwaitTheFirst: a client opens many watches at once, with a token that is
// not known yet: only the first is forwarded as one of an unknown caller. The others wait for its
// answer, but no longer than a second, and only for what tells whether the token is accepted.
func TestRequestsOfANewTokenAwaitTheFirst(t *testing.T) {
	const soon, late = 100 * time.Millisecond, time.Hour
	type first struct {
		method, upgrade string
		status          int // 0: it ends without an answer
		takes           time.Duration
	}
	for name, tt := range map[string]struct {
		first  first
		token  string
		others int
		want   newcomers
	}{
		"accepted":              {first{status: http.StatusOK, takes: soon}, "a", 19, newcomers{Accepted: 19, Waited: soon}},
		"may do nothing":        {first{status: http.StatusForbidden, takes: soon}, "a", 19, newcomers{Accepted: 19, Waited: soon}},
		"refused":               {first{status: http.StatusUnauthorized, takes: soon}, "a", 19, newcomers{Unknown: 19, Waited: soon}},
		"says nothing":          {first{status: http.StatusTooManyRequests, takes: soon}, "a", 19, newcomers{Unknown: 19, Waited: soon}},
		"the first leaves":      {first{takes: soon}, "a", 19, newcomers{Unknown: 19, Waited: soon}},
		"no answer for long":    {first{status: http.StatusOK, takes: late}, "a", 19, newcomers{Unknown: 19, Waited: time.Second}},
		"another token":         {first{status: http.StatusOK, takes: soon}, "b", 1, newcomers{Unknown: 1}},
		"the first upgrades":    {first{upgrade: "websocket", status: http.StatusOK, takes: soon}, "a", 1, newcomers{Unknown: 1}},
		"a question about CORS": {first{method: http.MethodOptions, status: http.StatusOK, takes: soon}, "a", 1, newcomers{Unknown: 1}},
		"too many wait":         {first{status: http.StatusOK, takes: soon}, "a", 260, newcomers{Accepted: 256, Unknown: 4, Waited: soon}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newNewcomersWorld(t)
				method := tt.first.method
				if method == "" {
					method = http.MethodGet
				}
				r := w.request(t.Context(), method, "a")
				if tt.first.upgrade != "" {
					r.Header.Set("Connection", "Upgrade")
					r.Header.Set("Upgrade", tt.first.upgrade)
				}
				go w.send(r, func(who caller) {
					time.Sleep(tt.first.takes)
					if tt.first.status != 0 {
						w.handler.Upstream.Answered(who.identity, tt.first.upgrade != "", method, tt.first.status)
					}
				})
				synctest.Wait()
				if got := w.come(t, tt.token, tt.others); got != tt.want {
					t.Error(cmp.Diff(tt.want, got))
				}
				if tt.first.takes == late { // its time is over: nobody waits any more
					if got, want := w.come(t, tt.token, 1), (newcomers{Unknown: 1}); got != want {
						t.Error(cmp.Diff(want, got))
					}
				}
				time.Sleep(tt.first.takes)
				synctest.Wait()
			})
		})
	}
}

// TestNewcomerLeaves: who waits for the answer to another request, and leaves, waits no longer.
func TestNewcomerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNewcomersWorld(t)
		go w.send(w.request(t.Context(), http.MethodGet, "a"), func(caller) { time.Sleep(time.Minute) })
		synctest.Wait()
		ctx, leave := context.WithTimeout(t.Context(), time.Millisecond)
		defer leave()
		begun := time.Now()
		w.send(w.request(ctx, http.MethodGet, "a"), func(caller) {})
		if waited := time.Since(begun); waited != time.Millisecond {
			t.Errorf("it has waited for %v", waited)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

// newcomersWorld is a Handler that does nothing but find out who calls.
type newcomersWorld struct{ handler *Handler }

func newNewcomersWorld(t *testing.T) newcomersWorld {
	t.Helper()
	up, err := upstream.New((&proxytest.FakeAPI{}).Config())
	if err != nil {
		t.Fatal(err)
	}
	return newcomersWorld{&Handler{
		Authenticator: authntest.New(t), Upstream: up, Collections: &snapshot.Collections{}, Log: proxytest.DiscardLog(),
	}}
}

func (newcomersWorld) request(ctx context.Context, method, token string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, method, "/api/v1/pods?watch=1", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// send sends a request; then is what follows when it is known who calls.
func (w newcomersWorld) send(r *http.Request, then func(who caller)) {
	next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { then(callerOf(r.Context())) })
	kubehttp.WithRequestInfo(w.handler.withAuthentication(next)).ServeHTTP(httptest.NewRecorder(), r)
}

// come sends so many requests at once, which go on until all of them have.
func (w newcomersWorld) come(t *testing.T, token string, requests int) (got newcomers) {
	t.Helper()
	begun, accepted, stay := time.Now(), make(chan bool), make(chan struct{})
	defer close(stay)
	for range requests {
		go w.send(w.request(t.Context(), http.MethodGet, token), func(who caller) {
			accepted <- who.accepted
			<-stay
		})
	}
	for range requests {
		if <-accepted {
			got.Accepted++
		} else {
			got.Unknown++
		}
	}
	got.Waited = time.Since(begun)
	return got
}
