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

// command has arguments of go test, such as "./snapshot -run ^TestHistories$". The tests must pass on the unchanged code. At
// least one must fail on a mutant, the code with one deliberate mistake.
type command string

// verdict classifies the result of a command.
type verdict int

const (
	passed   verdict = iota // at least one test ran, and none failed
	failed                  // at least one test failed, and go test says which
	unusable                // the result says nothing of the mutant: for example, the code does not compile, or no test ran
)

// result is what a run of a command shows.
type result struct {
	verdict verdict
	details string // if failed: the names of the failed tests; if unusable: why
}

// timeout is the -timeout of go test. It is twice what the slowest test takes on a busy machine: TestModel, with three minutes.
const timeout = "6m"

// noOverlay is the overlay of the unchanged code.
const noOverlay = ""

// run runs the command in root, the root of the repository. overlay is the path of a file for go's -overlay, which replaces
// files by those of a mutant, or noOverlay. It is passed in GOFLAGS, so that programs that tests build have the mutant's code,
// too.
func (c command) run(ctx context.Context, root, overlay string) result {
	args := append([]string{"test", "-json", "-count", "1", "-failfast", "-vet", "off", "-timeout", timeout}, strings.Fields(string(c))...)
	cmd := exec.CommandContext(ctx, "go", args...) // #nosec G204 -- of a file of this repository
	cmd.Dir = root
	cmd.Env = os.Environ()
	if overlay != noOverlay {
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	out, err := cmd.CombinedOutput()
	return judge(out, err)
}

// judge classifies a run of go test -json. err is nil if go test exited with 0.
func judge(out []byte, err error) result {
	var output strings.Builder // the text of the tests, without the JSON
	var failures []string      // the names of failed tests
	hasPassed := false         // a test has passed
	for line := range bytes.Lines(out) {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(line, &event) != nil {
			event.Output = string(line) // not from the tests: an error of go itself
		}
		output.WriteString(event.Output)
		switch event.Action {
		case "build-fail":
			return result{verdict: unusable, details: "DOES NOT COMPILE:\n" + output.String()}
		case "pass":
			hasPassed = hasPassed || event.Test != "" // an event without Test is of the whole package
		case "fail":
			// A subtest fails before its parent. The parent's name would add nothing.
			isParent := slices.ContainsFunc(failures, func(name string) bool { return strings.HasPrefix(name, event.Test+"/") })
			if event.Test != "" && !isParent {
				failures = append(failures, event.Test)
			}
		}
	}
	switch {
	case err == nil && hasPassed:
		return result{verdict: passed, details: "passes"}
	case err == nil:
		return result{verdict: unusable, details: "NO TEST RUNS"}
	case len(failures) > 0:
		return result{verdict: failed, details: strings.Join(failures, ", ")}
	}
	// For example a panic in TestMain, or the timeout.
	return result{verdict: unusable, details: fmt.Sprintf("FAILS, but no test of it (%v):\n%s", err, excerpt(output.String()))}
}

// excerpt returns up to 15 lines: the first of output or, if there is a panic, those from the panic on.
func excerpt(output string) string {
	const maxLines = 15
	if i := strings.Index(output, "panic: "); i >= 0 {
		output = output[i:]
	}
	lines := strings.SplitAfter(output, "\n")
	return strings.Join(lines[:min(maxLines, len(lines))], "")
}
