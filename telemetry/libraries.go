package telemetry

import (
	"context"
	"log/slog"
)

// Libraries returns a logger for libraries whose messages are for programmers. It lowers their messages to the level
// debug, if they are above it. What operators must know, listproxy logs itself.
func Libraries(log *slog.Logger) *slog.Logger { return slog.New(debugHandler{log.Handler()}) }

// debugHandler lowers records to the level debug.
type debugHandler struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (h debugHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.Handler.Enabled(ctx, min(level, slog.LevelDebug))
}

// Handle implements [slog.Handler].
func (h debugHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = min(r.Level, slog.LevelDebug)
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h debugHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h debugHandler) WithGroup(name string) slog.Handler {
	return debugHandler{h.Handler.WithGroup(name)}
}
