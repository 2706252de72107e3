package upstream

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Quiet returns a logger for code that asks the upstream and logs failures. While the upstream is
// in trouble or its checks fail, all its lines go to the level debug. So do lines about failed
// connections and refused credentials: the one line of Health says it once for all. Only what has
// failed often in a row, while Health finds no trouble, is logged as it is.
func (h *Health) Quiet(log *slog.Logger) *slog.Logger {
	return slog.New(quietHandler{log.Handler(), h.troubled})
}

// troubled says whether the upstream is known to be in trouble.
func (h *Health) troubled() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.stats.Condition {
	case ConditionUnknown, ConditionOK:
		return h.trouble.checks > 0
	case ConditionTwoVersions:
		return false
	}
	return true
}

// quietHandler lowers information and warnings to debug. The access log stays as it is.
type quietHandler struct {
	slog.Handler
	troubled func() bool
}

// Handle implements [slog.Handler].
func (h quietHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && r.Level < slog.LevelError && (h.troubled() || ofConnection(r)) {
		if !h.Enabled(ctx, slog.LevelDebug) {
			return nil
		}
		r.Level = slog.LevelDebug
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(attrs), h.troubled}
}

// WithGroup implements [slog.Handler].
func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name), h.troubled}
}

// oftenFailed is the attempt from which on a failure is not just momentary: by then Health would
// have noticed trouble.
const oftenFailed = 4

// ofConnection says whether a record is about an error of a connection, which may be over in a
// moment.
func ofConnection(r slog.Record) (found bool) {
	often := false
	r.Attrs(func(a slog.Attr) bool {
		often = often || a.Key == "attempt" && a.Value.Kind() == slog.KindInt64 && a.Value.Int64() >= oftenFailed
		if err, ok := a.Value.Any().(error); ok {
			var network net.Error
			found = found || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
				apierrors.IsUnauthorized(err)
		}
		return true
	})
	return found && !often
}
