package main

import (
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestHelp: listproxy --help shows commands and flags in sections, in lines of at most helpWidth columns.
func TestHelp(t *testing.T) {
	out, err := execute(t, "--help")
	expect.NoError(t, err)
	rest := out
	for _, want := range []string{
		"Usage:", "Commands:", "analyze ", "Upstream flags:", "--kubeconfig file", "Serving flags:", "--bind-address",
		"Auditing flags:", "Other flags:",
	} {
		_, after, found := strings.Cut(rest, want)
		rest = after
		if !found {
			t.Fatalf("the help lacks %q, or has it too early:\n%s", want, out)
		}
	}
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) > helpWidth {
			t.Errorf("a line has %d columns, want at most %d: %s", len(line), helpWidth, line)
		}
		if strings.HasSuffix(line, " ") {
			t.Errorf("a line ends with spaces: %q", line)
		}
	}
}

// TestHelpOfSubcommands: the help of a subcommand shows its usage, and no flags of listproxy itself.
func TestHelpOfSubcommands(t *testing.T) {
	for _, command := range []string{"status", "policy check", "policy", "help", "completion bash"} {
		t.Run(command, func(t *testing.T) {
			out, err := execute(t, append(strings.Fields(command), "--help")...)
			expect.NoError(t, err)
			expect.Says(t, out, "listproxy "+command)
			proxytest.AssertNotContains(t, out, "--bind-address")
		})
	}
}
