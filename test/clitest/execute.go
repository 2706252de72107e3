// Package clitest runs commands of listproxy in tests.
package clitest

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/listproxy/listproxy/test/expect"
)

// Execute runs a command with its arguments, and returns what it wrote to standard output and to standard error, and
// its error.
func Execute(t *testing.T, cmd *cobra.Command, args ...string) (out, errs string, err error) {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// Run is [Execute] where it is known whether the command fails. It returns what the command wrote, and its error.
func Run(t *testing.T, fails bool, cmd *cobra.Command, args ...string) string {
	t.Helper()
	out, errs, err := Execute(t, cmd, args...)
	out += errs
	if err != nil {
		out += err.Error()
	}
	if (err != nil) != fails {
		t.Errorf("it fails: %t, want %t: %s", err != nil, fails, out)
	}
	return out
}

// Refused demands an error that says all these words.
func Refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("accepted")
	}
	expect.Says(t, err.Error(), words...)
}
