package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
)

// TestThrough: a request meets the filters in the order in which they are written down.
func TestThrough(t *testing.T) {
	var met []string
	named := func(name string) filter {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				met = append(met, name)
				next.ServeHTTP(w, r)
			})
		}
	}
	end := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { met = append(met, "end") })
	through(end, named("a"), named("b"), named("c")).ServeHTTP(nil, nil)
	if want := []string{"a", "b", "c", "end"}; !slices.Equal(met, want) {
		t.Errorf("got %q, want %q", met, want)
	}
}

// TestNoAnswerToWhoLeft: a caller who has shut down its half of the connection, and reads on, must
// not get the empty 200 that net/http makes of a handler that writes nothing.
func TestNoAnswerToWhoLeft(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	leave()
	handler := &Handler{Collections: &snapshot.Collections{}, Log: slog.New(slog.DiscardHandler)}
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("ended with %v", err)
		}
	}()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api", nil)
	handler.refuse(httptest.NewRecorder(), r, ctx.Err())
}

// TestKeep: a body is kept whole only of who is known, and never that of a stream, which may not end.
func TestKeep(t *testing.T) {
	bounds, err := limits.New(limits.Config{Bytes: 1 << 30})
	expect.NoError(t, err)
	h := &Handler{Limits: bounds}
	for target, want := range map[string]bool{
		"/api/v1/namespaces/a/pods":                            true,
		"/api/v1/namespaces/a/pods/b/exec":                     false,
		"/api/v1/namespaces/a/services/grafana:80/proxy/login": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, nil)
		if got := h.keep(r, caller{verdict: upstream.Accepted}) != nil; got != want {
			t.Errorf("%s: %t", target, got)
		}
		if h.keep(r, caller{}) != nil {
			t.Errorf("%s of who is not known is kept", target)
		}
	}
}
