// Command dashboard draws docs/dashboard.svg: the main panels of the Grafana dashboard of the
// chart, from what a real listproxy before a real kube-apiserver said at /metrics under a mixed
// load. There is neither a Prometheus nor a Grafana in it: it scrapes, computes rates as PromQL's
// would be, and draws.
//
// At its end it prints what was stored and what memory that took, by which docs/operations.md
// checks how much to give listproxy.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/test/harness"
)

// settings are the command line.
type settings struct {
	pods     int
	writes   int // a second
	duration time.Duration
	restart  bool
	quiet    bool
	output   string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		say("dashboard: %v", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	samples, changes, err := observe(ctx, s)
	if err != nil {
		return err
	}
	if harness.Verdict(0) != 0 {
		return errors.New("listproxy did not end as it should")
	}
	if s.output == "" {
		return nil
	}
	title := fmt.Sprintf("listproxy before kube-apiserver: %d pods, %.0f changes a second, %s",
		s.pods, float64(changes)/s.duration.Seconds(), s.duration)
	return os.WriteFile(filepath.Clean(s.output), []byte(draw(title, panels(samples))), 0o644) // #nosec G306 G703 -- a document
}

func parse(args []string) (settings, error) {
	var s settings
	flags := pflag.NewFlagSet("dashboard", pflag.ContinueOnError)
	flags.IntVar(&s.pods, "pods", 3000, "how many pods there are")
	flags.IntVar(&s.writes, "writes", 20, "how many changes of pods a second")
	flags.DurationVar(&s.duration, "duration", 4*time.Minute, "how long the load goes on")
	flags.BoolVar(&s.restart, "restart", true, "restart kube-apiserver after three fifths of that")
	flags.BoolVar(&s.quiet, "quiet", false, "no load but the changes: for what is stored and the memory it takes")
	flags.StringVar(&s.output, "output", "", "where to write the picture; none if empty")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.pods < 100:
		return s, fmt.Errorf("--pods %d is too few: give at least 100", s.pods)
	case s.writes < 0:
		return s, fmt.Errorf("--writes %d: give 0 or more", s.writes)
	case s.duration < 20*time.Second:
		return s, fmt.Errorf("--duration %v is too short: give at least 20s", s.duration)
	}
	return s, nil
}

func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stderr, format+"\n", args...) }
