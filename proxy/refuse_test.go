package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestNoAnswerToWhoLeft: a caller who has shut down its half of the connection, and reads on, must not
// get the empty 200 that net/http makes of a handler that writes nothing.
func TestNoAnswerToWhoLeft(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	leave()
	handler := &Handler{Log: slog.New(slog.DiscardHandler)}
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("ended with %v", err)
		}
	}()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api", nil)
	handler.refuse(httptest.NewRecorder(), r, ctx.Err())
}
