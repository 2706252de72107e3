package main

import (
	"strings"
	"testing"
)

// TestHelp: listproxy --help has sections with lines that fit, and the commands below it have their
// own flags only.
func TestHelp(t *testing.T) {
	code, out, err := execute(t, "--help")
	if code != 0 || err != nil {
		t.Fatalf("%d, %v", code, err)
	}
	at := 0
	for _, want := range []string{"Usage:", "Commands:", "analyze ", "Upstream flags:", "--kubeconfig file", "Serving flags:", "--bind-address", "Auditing flags:"} {
		next := strings.Index(out[at:], want)
		if next < 0 {
			t.Fatalf("no %q, or not after those before it:\n%s", want, out)
		}
		at += next
	}
	for line := range strings.Lines(out) {
		if len(strings.TrimRight(line, "\n")) > helpWidth {
			t.Errorf("%d columns: %s", len(line), line)
		}
		if strings.TrimRight(line, " \n")+"\n" != line {
			t.Errorf("ends with spaces: %q", line)
		}
	}
	for _, command := range [][]string{{"status"}, {"policy", "check"}, {"policy"}} {
		_, out, _ = execute(t, append(command, "--help")...)
		if !strings.Contains(out, "listproxy "+strings.Join(command, " ")) || strings.Contains(out, "--bind-address") {
			t.Errorf("%v --help says\n%s", command, out)
		}
	}
}
