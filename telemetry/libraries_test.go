package telemetry

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestLibraries: what libraries say is for those who debug listproxy, and what they say in more
// detail than that, as bodies of requests, is not said at all.
func TestLibraries(t *testing.T) {
	for level, want := range map[slog.Level]string{slog.LevelInfo: "mine\n", slog.LevelDebug: "mine\ntheirs error\ntheirs info\n"} {
		var out bytes.Buffer
		log := NewLogger(&out, FormatText, level)
		log.Info("mine")
		theirs := Libraries(log).With("a", 1).WithGroup("g")
		theirs.Error("theirs error")
		theirs.Info("theirs info")
		theirs.Log(t.Context(), slog.LevelDebug-4, "theirs body")
		var said strings.Builder
		for line := range strings.Lines(out.String()) {
			_, message, _ := strings.Cut(line, "msg=")
			said.WriteString(strings.TrimSuffix(strings.ReplaceAll(strings.TrimSpace(message), `"`, ""), " a=1") + "\n")
			if strings.Contains(line, "theirs") && !strings.Contains(line, "level=DEBUG") {
				t.Errorf("said as %s", line)
			}
		}
		if said.String() != want {
			t.Errorf("at %v: %q, want %q", level, said.String(), want)
		}
	}
}
