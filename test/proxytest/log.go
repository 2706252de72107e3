package proxytest

import (
	"context"
	"log/slog"
	"sync"
)

// Recorder is a [slog.Handler] that keeps records.
type Recorder struct {
	mu      sync.Mutex
	records []slog.Record
}

// Enabled reports true for all levels.
func (*Recorder) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs returns r: attributes of the logger are ignored.
func (r *Recorder) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup returns r: groups are ignored.
func (r *Recorder) WithGroup(string) slog.Handler { return r }

// Handle keeps the record.
func (r *Recorder) Handle(_ context.Context, record slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, record)
	return nil
}

// Above returns the messages of the records above level, with their attributes.
func (r *Recorder) Above(level slog.Level) (texts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, record := range r.records {
		if record.Level > level {
			text := record.Message
			record.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
			texts = append(texts, text)
		}
	}
	return texts
}

// DiscardLog returns a log for tests that do not look at it.
func DiscardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }
