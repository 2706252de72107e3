package telemetry

import (
	"io"
	"log/slog"
)

// Format is the form in which log records are written.
type Format string

const (
	// FormatText writes key=value lines, for people.
	FormatText Format = "text"
	// FormatJSON writes one JSON object a line, for log collectors.
	FormatJSON Format = "json"
)

// NewLogger returns a logger that writes records of at least the given level to
// w, one line and one Write for each, with everything that looks like a
// credential replaced by [Masked]. A format other than [FormatJSON] means
// [FormatText]. The logger is safe for concurrent use, and calls w.Write from
// one goroutine at a time.
func NewLogger(w io.Writer, format Format, level slog.Leveler) *slog.Logger {
	masked := &maskingWriter{w: w}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: maskAttr}
	if format == FormatJSON {
		return slog.New(slog.NewJSONHandler(masked, options))
	}
	return slog.New(slog.NewTextHandler(masked, options))
}
