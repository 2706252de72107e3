package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
)

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
