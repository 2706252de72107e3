// Command mutants (make mutants) shows that the tests notice mistakes. A mutant is a change that breaks the code in one place.
// This command applies one mutant at a time, and runs the tests that must then fail. If a test fails, the mutant is killed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	names := flag.String("run", "", "a regexp: only the mutants whose name matches")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *names); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1) //nolint:gocritic // the deferred stop was called
	}
}

// run tries the mutants whose names match, and prints the result of each.
func run(ctx context.Context, names string) error {
	pattern, err := regexp.Compile(names)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	mutants, err := readAll(root, pattern)
	if err != nil {
		return err
	}
	overlays, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(overlays) }()

	begun := time.Now()
	t := trial{root: root, overlays: overlays}
	// Two groups run at a time: one of suites and one of unit tests, or two of unit tests once the suites are done. Two of
	// suites would build listproxy in the same place.
	suites, unitTests := groupByCommand(mutants)
	var workers sync.WaitGroup
	workers.Go(func() {
		t.tryGroups(ctx, suites)
		t.tryGroups(ctx, unitTests)
	})
	workers.Go(func() { t.tryGroups(ctx, unitTests) })
	workers.Wait()
	killed := int(t.killed.Load())
	fmt.Printf("%d mutants, %d killed, in %v\n", len(mutants), killed, time.Since(begun).Round(time.Second))
	if killed < len(mutants) {
		return fmt.Errorf("%d mutants were not killed: see above", len(mutants)-killed)
	}
	return nil
}

// trial is a run of mutants.
type trial struct {
	root     string // of the repository
	overlays string // a folder for files of [mutant.overlay]
	killed   atomic.Int32
}

// tryGroups tries groups of mutants until the channel is closed.
func (t *trial) tryGroups(ctx context.Context, groups <-chan []mutant) {
	for group := range groups {
		t.tryGroup(ctx, group)
	}
}

// tryGroup tries mutants with the same command, which must pass on the unchanged code.
func (t *trial) tryGroup(ctx context.Context, mutants []mutant) {
	command := mutants[0].command
	if r := command.run(ctx, t.root, noOverlay); r.verdict != passed {
		for _, m := range mutants {
			m.report("NOT TRIED, without it go test %s: %s", command, r.details)
		}
		return
	}
	for _, m := range mutants {
		overlay, err := m.overlay(t.root, t.overlays)
		if err != nil {
			m.report("NOT APPLIED: %v", err)
			continue
		}
		begun := time.Now()
		r := command.run(ctx, t.root, overlay)
		took := time.Since(begun).Round(100 * time.Millisecond)
		switch r.verdict {
		case failed:
			t.killed.Add(1)
			m.report("killed in %v by %s", took, r.details)
		case passed:
			m.report("SURVIVED go test %s in %v: %s", command, took, m.sentence)
		case unusable:
			m.report("%s", r.details)
		}
	}
}

// report prints the result of a mutant.
func (m mutant) report(format string, args ...any) {
	fmt.Printf("%-45s %s\n", m.name, fmt.Sprintf(format, args...))
}
