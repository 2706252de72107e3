package analyze

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/expect"
)

// TestAnalyzeCommand: the forms of the report, and what is said of files that are no logs.
func TestAnalyzeCommand(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		expect.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	line := event("/api/v1/pods?resourceVersion=0", nil)
	log, empty := file("audit.log", line+line+"bad\n"), file("empty.log", "")
	cut := file("cut.log.gz", "\x1f\x8b\x08\x00")
	builtIn := func(*pflag.FlagSet, string) (*policy.Config, error) { return policy.DefaultConfig(), nil }
	for _, test := range []struct {
		name  string
		args  []string
		fails bool
		want  []string // in what is said, the error included
	}{
		{"text", []string{log}, false, []string{"2 lists and 0 watches", "without an audit event: 1", "tool/v1 alice", "100.0%"}},
		{"several", []string{log, log}, false, []string{"4 lists"}},
		{"nothing in it", []string{empty}, true, []string{"there is no audit event"}},
		{"one is missing", []string{log, filepath.Join(dir, "none.log")}, true, []string{"2 lists", "none.log: no such file"}},
		{"ends early", []string{log, cut}, true, []string{"2 lists", "cut.log.gz: ", "unexpected EOF"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			expect.Says(t, clitest.Run(t, test.fails, NewCommand(builtIn), test.args...), test.want...)
		})
	}
	var report Report
	expect.NoError(t, json.Unmarshal([]byte(clitest.Run(t, false, NewCommand(builtIn), "--output", "json", log)), &report))
	expect.Same(t, int64(2), report.Totals.Lists.FromMemory)
}
