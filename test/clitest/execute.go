// Package clitest runs commands of listproxy in tests.
package clitest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/listproxy/listproxy/cmd/listproxy/cli"
	"github.com/listproxy/listproxy/test/expect"
)

// Execute runs one command as listproxy would, with its arguments, and returns the exit code, what
// it wrote, and its error.
func Execute(t *testing.T, cmd *cobra.Command, args ...string) (code int, out string, err error) {
	t.Helper()
	root := &cobra.Command{Use: "listproxy"}
	root.AddCommand(cmd)
	cli.Root(root)
	return ExecuteRoot(t, root, append([]string{cmd.Name()}, args...)...)
}

// Ends is [Execute] where the exit code is known. It returns what the command wrote, and its error.
func Ends(t *testing.T, code int, cmd *cobra.Command, args ...string) (out string) {
	t.Helper()
	got, out, err := Execute(t, cmd, args...)
	if err != nil {
		out += err.Error()
	}
	if got != code {
		t.Errorf("exit code %d, want %d: %s", got, code, out)
	}
	return out
}

// ExecuteRoot is [Execute] for a command line of listproxy itself.
func ExecuteRoot(t *testing.T, root *cobra.Command, args ...string) (code int, out string, err error) {
	t.Helper()
	var text bytes.Buffer
	root.SetArgs(args)
	root.SetOut(&text)
	root.SetErr(&text)
	if err = root.ExecuteContext(t.Context()); err != nil {
		code = cli.ExitCode(err)
	}
	return code, text.String(), err
}

// PolicyFile writes a policy file, whose body begins in line 3.
func PolicyFile(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	text := "apiVersion: listproxy.io/v1alpha1\nkind: Policy\n" + body
	expect.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Refused demands an error that says all these words.
func Refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("accepted")
	}
	expect.Says(t, err.Error(), words...)
}
