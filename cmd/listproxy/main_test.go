package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/expect"
)

// execute runs a command line, and returns its exit code.
func execute(t *testing.T, args ...string) (code int, out string, err error) {
	t.Helper()
	out, errs, err := clitest.Execute(t, newCommand(), args...)
	if err != nil {
		code = exitCode(err)
	}
	return code, out + errs, err
}

// policyFile writes a policy file, whose body begins in line 3.
func policyFile(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	text := "apiVersion: listproxy.io/v1alpha1\nkind: Policy\n" + body
	expect.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestWrongCommandLines: a command line that cannot be meant has exit code 2 at every command, and
// says what is wrong.
func TestWrongCommandLines(t *testing.T) {
	for line, says := range map[string]string{
		"--no-such-flag":   "unknown flag: --no-such-flag",
		"no-such-command":  `unknown command "no-such-command"`,
		"--log-level loud": "--log-level",

		"--bind-address 1.2.3.4:443": "without the port",
		"--cache-bytes 2GB":          "512Mi or 2Gi",

		"kubeconfig --no-such-flag":       "unknown flag",
		"kubeconfig extra":                "extra",
		"policy nosuch":                   `unknown command "nosuch"`,
		"policy --no-such-flag":           "unknown flag",
		"policy check":                    "accepts 1 arg(s), received 0",
		"policy check --no-such-flag":     "unknown flag",
		"status extra":                    "extra",
		"status --address ftp://x":        "http://127.0.0.1:8081",
		"status --output yaml":            "unknown flag: --output",
		"try a b":                         "accepts at most 1 arg",
		"try pods":                        `"pods" is not a path`,
		"try --wait -1s":                  "--wait -1s",
		"analyze":                         "name the logs to read",
		"analyze --output yaml x":         `--output "yaml": choose`,
		"analyze --top -1 x":              "--top -1",
		"analyze --config no-such-file x": "no-such-file",
		"completion tcsh":                 `unknown command "tcsh"`,
		"completion bash extra":           "extra",
		"completion bash --no-such-flag":  "unknown flag",
	} {
		if code, out, err := execute(t, strings.Fields(line)...); code != exitUsage || out != "" || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: exit code %d, %v, want %q\n%s", line, code, err, says, out)
		}
	}
	wrong := policyFile(t, "defaults:\n  cache: sometimes\nresources:\n- {group: '', resource: pods, historyWindow: 1}\n")
	for line, says := range map[string][]string{
		"policy check no-such-file": {"no-such-file"}, "analyze no-such-file": {"no-such-file"}, "kubeconfig --kubeconfig no-such-file": nil,
		"policy check " + wrong: {wrong + ": defaults.cache", wrong + ": resources[0].historyWindow"},
	} {
		code, out, err := execute(t, strings.Fields(line)...)
		if code != exitFailed || out != "" {
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
