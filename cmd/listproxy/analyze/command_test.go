package analyze

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/expect"
)

// TestAnalyzeCommand: the command reports, as text or as JSON, on every log that it can read. It fails if a log cannot be read
// to its end, or has no event.
func TestAnalyzeCommand(t *testing.T) {
	dir := t.TempDir()
	writeFile := func(name, text string) string {
		path := filepath.Join(dir, name)
		expect.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	line := event(listURI)
	log := writeFile("audit.log", line+line+"not an event\n")
	empty := writeFile("empty.log", "")
	truncated := writeFile("truncated.log.gz", "\x1f\x8b\x08\x00") // the beginning of gzip's header
	newCommand := func() *cobra.Command {
		return NewCommand(func(string) (*policy.File, error) { return &policy.File{}, nil })
	}
	for _, test := range []struct {
		name      string
		files     []string
		wantError bool
		wantSays  []string // in the output or the error
	}{
		{
			name: "one log", files: []string{log},
			wantSays: []string{"2 lists and 0 watches", "without an audit event: 1", "tool/v1 alice", "100.0%"},
		},
		{name: "two logs", files: []string{log, log}, wantSays: []string{"4 lists"}},
		{name: "empty log", files: []string{empty}, wantError: true, wantSays: []string{"there is no audit event"}},
		{
			name: "a log and a missing file", files: []string{log, filepath.Join(dir, "none.log")}, wantError: true,
			wantSays: []string{"2 lists", "none.log: no such file"},
		},
		{
			name: "a log and a truncated log", files: []string{log, truncated}, wantError: true,
			wantSays: []string{"2 lists", "truncated.log.gz: ", "unexpected EOF"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			expect.Says(t, clitest.Run(t, test.wantError, newCommand(), test.files...), test.wantSays...)
		})
	}
	t.Run("JSON", func(t *testing.T) {
		out, _, err := clitest.Execute(t, newCommand(), "--output", "json", log)
		expect.NoError(t, err)
		var report Report
		expect.NoError(t, json.Unmarshal([]byte(out), &report))
		expect.Same(t, RequestCounts{Count: 2, FromMemory: 2}, report.Totals.Lists)
	})
}
