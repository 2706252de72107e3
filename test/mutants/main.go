// Command mutants (make mutants) breaks the code in one place at a time: by a mutant. For each mutant, a test must fail.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"sync"
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
	// Two at a time, but never two suites: they build listproxy in the same place.
	suites, unitTests := groupByCommand(mutants)
	var workers sync.WaitGroup
	workers.Go(func() { t.tryGroups(ctx, suites); t.tryGroups(ctx, unitTests) })
	workers.Go(func() { t.tryGroups(ctx, unitTests) })
	workers.Wait()
	fmt.Printf("%d mutants, %d killed, in %v\n", len(mutants), t.killed, time.Since(begun).Round(time.Second))
	if t.killed < len(mutants) {
		return fmt.Errorf("%d mutants were not killed: see above", len(mutants)-t.killed)
	}
	return nil
}

// trial is a run of mutants.
type trial struct {
	root     string // of the repository
	overlays string // a folder for files of [mutant.overlay]

	mu     sync.Mutex
	killed int
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
	if r := command.run(ctx, t.root, ""); r.verdict != passed {
		for _, m := range mutants {
			t.report(m, fmt.Sprintf("NOT TRIED, without it go test %s: %s", command, r.why), false)
		}
		return
	}
	for _, m := range mutants {
		overlay, err := m.overlay(t.root, t.overlays)
		if err != nil {
			t.report(m, fmt.Sprintf("NOT APPLIED: %v", err), false)
			continue
		}
		begun := time.Now()
		r := command.run(ctx, t.root, overlay)
		took := time.Since(begun).Round(100 * time.Millisecond)
		switch r.verdict {
		case failed:
			t.report(m, fmt.Sprintf("killed in %v by %s", took, r.why), true)
		case passed:
			t.report(m, fmt.Sprintf("SURVIVED go test %s in %v: %s", command, took, m.sentence), false)
		case unusable:
			t.report(m, r.why, false)
		}
	}
}

// report prints the result of a mutant, and counts it if it was killed.
func (t *trial) report(m mutant, result string, killed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if killed {
		t.killed++
	}
	fmt.Printf("%-45s %s\n", m.name, result)
}
