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

// Run executes a command and returns all that it wrote, and the text of its error. The test fails unless the command returns
// an error exactly if wantErr.
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

// Refused fails the test unless err has all these words.
func Refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("accepted")
	}
	expect.Says(t, err.Error(), words...)
}
