package main

import (
	"testing"

	"github.com/listproxy/listproxy/cmd/listproxy/cli"
	"github.com/listproxy/listproxy/cmd/listproxy/cli/clitest"
)

// execute runs a command line, and returns its exit code.
func execute(t *testing.T, args ...string) (code int, out string, err error) {
	t.Helper()
	return clitest.ExecuteRoot(t, newCommand(), args...)
}

func TestUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"--no-such-flag"}, {"no-such-command"}, {"--log-level", "loud"}, {"kubeconfig", "--no-such-flag"}, {"policy", "check", "--no-such-flag"},
	} {
		if code, _, err := execute(t, args...); code != cli.ExitUsage {
			t.Errorf("%q: exit code %d: %v", args, code, err)
		}
	}
	if code, _, err := execute(t, "policy", "check", "no-such-file"); code != cli.ExitFailed {
		t.Errorf("a file that is not there: exit code %d: %v", code, err)
	}
}
