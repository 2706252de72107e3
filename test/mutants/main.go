// Command mutants breaks the code in one place at a time, and demands that a test notices: make mutants.
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
	only := flag.String("run", "", "a regexp: only the mutants whose name matches")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// run tries the mutants whose name matches, and prints what becomes of each.
func run(ctx context.Context, only string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("which mutants: %w", err)
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
	// Two at a time, but not two that run listproxy as a process, which is built in one place.
	suites, others := byCommand(mutants)
	var both sync.WaitGroup
	both.Go(func() { t.tryEach(ctx, suites); t.tryEach(ctx, others) })
	both.Go(func() { t.tryEach(ctx, others) })
	both.Wait()
	fmt.Printf("%d mutants, %d killed, in %v\n", len(mutants), t.killed, time.Since(begun).Round(time.Second))
	if t.killed < len(mutants) {
		return fmt.Errorf("%d mutants were not killed: see above", len(mutants)-t.killed)
	}
	return nil
}

// trial is one run of all mutants.
type trial struct {
	root, overlays string

	mu     sync.Mutex
	killed int
}

// tryEach tries groups of mutants until there are no more.
func (t *trial) tryEach(ctx context.Context, groups <-chan []mutant) {
	for group := range groups {
		t.tryAll(ctx, group)
	}
}

// tryAll tries mutants that have the same command, which must pass without them.
func (t *trial) tryAll(ctx context.Context, mutants []mutant) {
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

func (t *trial) report(m mutant, what string, killed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if killed {
		t.killed++
	}
	fmt.Printf("%-45s %s\n", m.name, what)
}
