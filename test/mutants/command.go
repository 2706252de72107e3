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

// command is a run of go test, by its arguments: a package, and flags. It must pass on the unchanged code, and fail on a
// mutant.
type command string

// verdict classifies the result of a command.
type verdict int

const (
	passed   verdict = iota // at least one test ran, and none failed
	failed                  // at least one test failed, by its name
	unusable                // the code does not compile, or no test ran
)

// result is a verdict with its details: the names of failed tests, or the reason for another verdict.
type result struct {
	verdict verdict
	details string
}

// timeout bounds a run of a command. The tests of every command take less: TestModel takes 40 s, and three minutes on a machine
// with other work.
const timeout = "6m"

// run runs the command in root. overlay is the path of a file for go's -overlay, or "". It is passed in GOFLAGS, so it also
// holds for the programs that tests build.
func (c command) run(ctx context.Context, root, overlay string) result {
	args := append([]string{"test", "-json", "-count", "1", "-failfast", "-vet", "off", "-timeout", timeout}, strings.Fields(string(c))...)
	cmd := exec.CommandContext(ctx, "go", args...) // #nosec G204 -- of a file of this repository
	cmd.Dir = root
	cmd.Env = os.Environ()
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	out, err := cmd.CombinedOutput()
	return judge(out, err)
}

// judge classifies a run of go test -json by its output and its error.
func judge(out []byte, err error) result {
	var output strings.Builder
	var failures []string
	hasRun := false
	for line := range bytes.Lines(out) {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(line, &event) != nil {
			event.Output = string(line)
		}
		output.WriteString(event.Output)
		switch event.Action {
		case "build-fail":
			return result{verdict: unusable, details: "DOES NOT COMPILE:\n" + output.String()}
		case "pass":
			hasRun = hasRun || event.Test != ""
		case "fail":
			// A subtest fails before its parent. The parent's name would add nothing.
			isParent := slices.ContainsFunc(failures, func(f string) bool { return strings.HasPrefix(f, event.Test+"/") })
			if event.Test != "" && !isParent {
				failures = append(failures, event.Test)
			}
		}
	}
	switch {
	case err == nil && hasRun:
		return result{verdict: passed, details: "passes"}
	case err != nil && len(failures) > 0:
		return result{verdict: failed, details: strings.Join(failures, ", ")}
	case err == nil:
		return result{verdict: unusable, details: "NO TEST RUNS"}
	}
	return result{verdict: unusable, details: fmt.Sprintf("FAILS, but no test of it (%v):\n%s", err, excerpt(output.String()))}
}

// excerpt returns the first lines of output, or of its first panic.
func excerpt(output string) string {
	const lines = 15
	if i := strings.Index(output, "panic: "); i >= 0 {
		output = output[i:]
	}
	all := strings.SplitAfter(output, "\n")
	return strings.Join(all[:min(lines, len(all))], "")
}
