// Package clitest runs commands of listproxy in tests.
package clitest

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/listproxy/listproxy/test/expect"
)

// Execute runs a command with its arguments, and returns its standard output, its standard error, and its error.
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

// Run executes a command and returns all that it wrote, followed by the text of its error. The test fails if the command
// returns an error and wantErr is false, or returns none and wantErr is true.
func Run(t *testing.T, wantErr bool, cmd *cobra.Command, args ...string) string {
	t.Helper()
	out, errs, err := Execute(t, cmd, args...)
	out += errs
	if err != nil {
		out += err.Error()
	}
	if (err != nil) != wantErr {
		t.Errorf("the command returned the error %v, want one: %t: %s", err, wantErr, out)
	}
	return out
}

// Refused ends the test if err is nil, and fails it for each part that is missing in the text of err.
func Refused(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want one with %q", parts)
	}
	expect.Says(t, err.Error(), parts...)
}
