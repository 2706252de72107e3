package harness

import (
	"fmt"
	"strings"
	"testing"
)

// TestLastOf: the reason of a failure is within the lines that are told.
func TestLastOf(t *testing.T) {
	var many strings.Builder
	for i := range 1000 {
		_, _ = fmt.Fprintf(&many, "msg=line number=%d\nmsg=request number=%d\n", i, i)
	}
	const report = "WARNING: DATA RACE\nit is here\n"
	for name, tt := range map[string]struct {
		log, first, last string
		lines            int
	}{
		"nothing":  {"", "", "", 0},
		"little":   {"msg=a\nmsg=request method=GET\nmsg=b\n", "msg=a", "msg=b", 2},
		"much":     {many.String(), "msg=line number=980", "msg=line number=999", toldLines},
		"a report": {many.String() + report + many.String(), "WARNING: DATA RACE", "msg=request number=38", reportLines},
		"a panic":  {"msg=a\npanic: here\ngoroutine 1", "panic: here", "goroutine 1", 2},
	} {
		t.Run(name, func(t *testing.T) {
			told := strings.TrimSuffix(lastOf(tt.log), "\n")
			lines := strings.Split(told, "\n")
			if told == "" {
				lines = nil
			}
			if len(lines) != tt.lines {
				t.Fatalf("%d lines, want %d:\n%s", len(lines), tt.lines, told)
			}
			if tt.lines > 0 && (lines[0] != tt.first || lines[len(lines)-1] != tt.last) {
				t.Errorf("from %q to %q, want from %q to %q", lines[0], lines[len(lines)-1], tt.first, tt.last)
			}
		})
	}
}
