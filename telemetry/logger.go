package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// LevelAccess is the level of the access log, which has one line for each request. It is between slog's Info and Debug,
// and is written as ACCESS.
const LevelAccess = slog.LevelInfo - 2

// ParseLevel returns the level with this name, in upper or lower case.
func ParseLevel(name string) (slog.Level, error) {
	if strings.EqualFold(name, "access") {
		return LevelAccess, nil
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(name)); err != nil {
		return 0, fmt.Errorf("%w: choose debug, access, info, warn or error", err)
	}
	return level, nil
}

// Format is the form in which log records are written.
type Format string

const (
	// FormatText writes key=value lines, for people.
	FormatText Format = "text"
	// FormatJSON writes one JSON object a line, for log collectors.
	FormatJSON Format = "json"
)

// NewLogger returns a logger that writes records of at least the given level to w. Each record is one line and one Write. Text
// that looks like a credential is replaced by [Masked]. An unknown format means [FormatText]. The logger is safe for concurrent
// use, and calls w.Write from one goroutine at a time.
func NewLogger(w io.Writer, format Format, level slog.Leveler) *slog.Logger {
	masked := &maskingWriter{w: w}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: replaceAttr}
	if format == FormatJSON {
		return slog.New(slog.NewJSONHandler(masked, options))
	}
	return slog.New(slog.NewTextHandler(masked, options))
}

// ForLibraries returns the logger for libraries: log itself if it writes debug messages, otherwise a logger that discards all
// messages. Messages of libraries are for programmers. listproxy itself logs what operators must know.
func ForLibraries(log *slog.Logger) *slog.Logger {
	if log.Enabled(context.Background(), slog.LevelDebug) {
		return log
	}
	return slog.New(slog.DiscardHandler)
}

// NewLogLimiter returns a limiter for log lines that callers can cause: twenty lines pass, and then one in ten seconds.
func NewLogLimiter() *rate.Sometimes { return &rate.Sometimes{First: 20, Interval: 10 * time.Second} }

// replaceAttr returns the attribute that is written in place of a: ACCESS for LevelAccess, which slog would call DEBUG+2, and a
// masked attribute for a credential.
func replaceAttr(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.LevelKey && a.Value.Any() == LevelAccess {
		return slog.String(slog.LevelKey, "ACCESS")
	}
	return maskAttr(groups, a)
}
