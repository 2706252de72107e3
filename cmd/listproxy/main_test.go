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

// execute runs a command line, and returns what it wrote to standard output and standard error.
func execute(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	out, errs, err := clitest.Execute(t, newCommand(), args...)
	return out + errs, err
}

// policyFile writes a policy file with this body, below the two lines that each policy file begins with. It returns the path.
func policyFile(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	text := "apiVersion: listproxy.io/v1alpha1\nkind: Policy\n" + body
	expect.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestWrongCommandLines: listproxy refuses a command line that cannot be right, with an error that says what is wrong, and
// prints nothing.
func TestWrongCommandLines(t *testing.T) {
	wrongPolicy := policyFile(t, "defaults:\n  cache: sometimes\n"+
		"resources:\n- {group: '', resource: pods, historyWindow: 1}\n")
	for line, wantSays := range map[string][]string{
		"--no-such-flag":  {"unknown flag: --no-such-flag"},
		"no-such-command": {`unknown command "no-such-command"`},

		"--bind-address 1.2.3.4:443": {"without the port"},
		"--cache-bytes 2GB":          {"512Mi or 2Gi"},

		"kubeconfig --no-such-flag":            {"unknown flag"},
		"kubeconfig --kubeconfig no-such-file": {"no-such-file"},
		"policy nosuch":                        {`unknown command "nosuch"`},
		"policy check":                         {"accepts 1 arg(s), received 0"},
		"policy check no-such-file":            {"no-such-file"},
		"policy check " + wrongPolicy:          {wrongPolicy + ": defaults.cache", ": resources[0].historyWindow"},
		"status --output yaml":                 {"unknown flag: --output"},
		"try a b":                              {"accepts at most 1 arg"},
		"try pods":                             {`"pods" is not a path`},
		"try --wait -1s":                       {"--wait -1s"},
		"analyze":                              {"name the logs to read"},
		"analyze --output yaml x":              {`--output "yaml": choose`},
		"analyze --top -1 x":                   {"--top -1"},
		"analyze --config no-such-file x":      {"no-such-file"},
		"completion bash extra":                {"extra"},
	} {
		t.Run(line, func(t *testing.T) {
			out, err := execute(t, strings.Fields(line)...)
			clitest.Refused(t, err, wantSays...)
			expect.Same(t, "", out)
		})
	}
}

// TestCommandLinesThatOnlyPrint: commands and flags for help and the version print a text, and do not fail.
func TestCommandLinesThatOnlyPrint(t *testing.T) {
	for _, line := range []string{"help", "help policy check", "policy", "policy --help", "--version"} {
		if out, err := execute(t, strings.Fields(line)...); err != nil || out == "" {
			t.Errorf("listproxy %s: got the text %q and error %v, want a text and no error", line, out, err)
		}
	}
}

// TestUserAgent: the access log has the User-Agent of listproxy try as it is, not masked.
func TestUserAgent(t *testing.T) {
	if telemetry.UserAgent(userAgent("listproxy-try")) == telemetry.Masked {
		t.Errorf("the User-Agent %q is masked", userAgent("listproxy-try"))
	}
}
