package main

import (
	"strings"
	"testing"
)

// TestHelp: listproxy --help shows all flags in sections, in lines that fit. The help of a subcommand shows only flags
// of its own.
func TestHelp(t *testing.T) {
	out, err := execute(t, "--help")
	if err != nil {
		t.Fatal(err)
	}
	rest := out
	for _, want := range []string{
		"Usage:", "Commands:", "analyze ", "Upstream flags:", "--kubeconfig file", "Serving flags:", "--bind-address",
		"Auditing flags:", "Other flags:",
	} {
		var found bool
		if _, rest, found = strings.Cut(rest, want); !found {
			t.Fatalf("the help lacks %q, or has it too early:\n%s", want, out)
		}
	}
	for line := range strings.Lines(out) {
		if len(strings.TrimRight(line, "\n")) > helpWidth {
			t.Errorf("a line has %d columns, want at most %d: %s", len(line), helpWidth, line)
		}
		if strings.TrimRight(line, " \n")+"\n" != line {
			t.Errorf("a line ends with spaces: %q", line)
		}
	}
	for _, command := range []string{"status", "policy check", "policy", "help", "completion bash"} {
		out, err := execute(t, append(strings.Fields(command), "--help")...)
		if err != nil || !strings.Contains(out, "listproxy "+command) || strings.Contains(out, "--bind-address") {
			t.Errorf("listproxy %s --help prints, with the error %v:\n%s", command, err, out)
		}
	}
}
