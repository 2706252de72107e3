package main

import (
	"strings"
	"testing"

	"github.com/listproxy/listproxy/cmd/listproxy/cli"
	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/expect"
)

// execute runs a command line, and returns its exit code.
func execute(t *testing.T, args ...string) (code int, out string, err error) {
	t.Helper()
	return clitest.ExecuteRoot(t, newCommand(), args...)
}

// TestWrongCommandLines: a command line that cannot be meant has exit code 2 at every command, and
// says what is wrong.
func TestWrongCommandLines(t *testing.T) {
	for line, says := range map[string]string{
		"--no-such-flag":   "unknown flag: --no-such-flag",
		"no-such-command":  `unknown command "no-such-command"`,
		"--log-level loud": "--log-level",

		"kubeconfig --no-such-flag":      "unknown flag",
		"kubeconfig extra":               "extra",
		"policy nosuch":                  `unknown command "nosuch"`,
		"policy --no-such-flag":          "unknown flag",
		"policy check":                   "accepts 1 arg(s), received 0",
		"policy check --no-such-flag":    "unknown flag",
		"status extra":                   "extra",
		"status --output yaml":           "unknown flag: --output",
		"try a b":                        "accepts at most 1 arg",
		"try pods":                       `"pods" is not a path`,
		"try --wait -1s":                 "--wait -1s",
		"analyze":                        "name the logs to read",
		"analyze --output yaml x":        `--output "yaml": choose`,
		"analyze --top -1 x":             "--top -1",
		"completion tcsh":                `unknown command "tcsh"`,
		"completion bash extra":          "extra",
		"completion bash --no-such-flag": "unknown flag",
		"help nosuch":                    `unknown command "nosuch"`,
		"help policy nosuch":             "unknown command",
	} {
		if code, out, err := execute(t, strings.Fields(line)...); code != cli.ExitUsage || out != "" || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: exit code %d, %v, want %q\n%s", line, code, err, says, out)
		}
	}
	wrong := clitest.PolicyFile(t, "defaults:\n  cache: sometimes\nresources:\n- {group: '', resource: pods, historyWindow: 1}\n")
	for line, says := range map[string][]string{
		"policy check no-such-file": {"no-such-file"}, "analyze no-such-file": {"no-such-file"}, "kubeconfig --kubeconfig no-such-file": nil,
		"policy check " + wrong: {wrong + ": defaults.cache", wrong + ": resources[0].historyWindow"},
	} {
		code, out, err := execute(t, strings.Fields(line)...)
		if code != cli.ExitFailed || out != "" {
			t.Errorf("%s: exit code %d, %v\n%s", line, code, err, out)
			continue
		}
		expect.Says(t, err.Error(), says...)
	}
	for _, line := range []string{"help", "help policy check", "policy", "policy --help", "--version"} {
		if code, _, err := execute(t, strings.Fields(line)...); code != 0 {
			t.Errorf("%s: exit code %d: %v", line, code, err)
		}
	}
	if telemetry.UserAgent(userAgent("listproxy-try")) == telemetry.Masked {
		t.Error("the access log hides who listproxy try is")
	}
}
