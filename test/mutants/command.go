package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// command is what follows "go test": a package, and flags.
type command string

// verdict is what a command said.
type verdict int

const (
	passed verdict = iota // at least one test
	failed                // at least one test, by its name
	// unusable: nothing was compiled, or no test ran.
	unusable
)

// result is the verdict, and the tests that failed or what is wrong.
type result struct {
	verdict verdict
	why     string
}

// timeout is longer than the tests of any command take.
const timeout = "3m"

// run runs the command; with an overlay, on the code as a mutant has it. The environment has the
// overlay, so that it counts for programs that tests build, too.
func (c command) run(ctx context.Context, root, overlay string) result {
	args := append([]string{"test", "-json", "-count", "1", "-failfast", "-vet", "off", "-timeout", timeout}, strings.Fields(string(c))...)
	cmd := exec.CommandContext(ctx, "go", args...) // #nosec G204 -- of a file of this repository
	cmd.Dir, cmd.Env = root, os.Environ()
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	out, err := cmd.CombinedOutput()
	return judge(out, err)
}

// judge reads what go test -json has written.
func judge(out []byte, err error) result {
	var said strings.Builder
	var failures []string
	ran := false
	for line := range bytes.Lines(out) {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(line, &event) != nil {
			event.Output = string(line)
		}
		said.WriteString(event.Output)
		switch event.Action {
		case "build-fail":
			return result{unusable, "DOES NOT COMPILE:\n" + said.String()}
		case "pass":
			ran = ran || event.Test != ""
		case "fail":
			// A test fails after its subtests: the first is the one that says why.
			if event.Test != "" && !slices.ContainsFunc(failures, func(f string) bool { return strings.HasPrefix(f, event.Test+"/") }) {
				failures = append(failures, event.Test)
			}
		}
	}
	switch {
	case err == nil && ran:
		return result{passed, "passes"}
	case err != nil && len(failures) > 0:
		return result{failed, strings.Join(failures, ", ")}
	case err == nil:
		return result{unusable, "NO TEST RUNS"}
	}
	return result{unusable, fmt.Sprintf("FAILS, but no test of it (%v):\n%s", err, beginning(said.String()))}
}

// beginning is what was said first of the end: a panic, and where, or why nothing began.
func beginning(said string) string {
	const lines = 15
	if at := strings.Index(said, "panic: "); at >= 0 {
		said = said[at:]
	}
	all := strings.SplitAfter(said, "\n")
	return strings.Join(all[:min(lines, len(all))], "")
}
