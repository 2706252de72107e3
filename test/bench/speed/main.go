package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/test/bench/speed/report"
	"github.com/listproxy/listproxy/test/harness"
)

const usage = `Usage: bench MEASURE [options]

Measures listproxy beside kube-apiserver and beside a bare Go handler that writes the same bytes.

  lists     what is answered from memory
  scale     many pods and many changes, from an upstream that makes them
  forward   what listproxy adds to what it forwards
  start     a start before many pods
  newest    lists of the newest state (--consistent-lists)
  watches   streaming lists, events and node agents (--watches)

`

// The roles of this program's other processes.
const (
	roleLimit  = "role-limit"
	roleClient = "role-client"
)

// settings are the command line.
type settings struct {
	pods     int
	page     int
	rounds   int
	requests int
	megabyte int
	clients  int
	write    bool
	args     []string // more for listproxy

	sizes        []int // numbers of pods
	small, large int   // bytes of a pod
	rate         int   // changes a second
	seconds      int
	herd         int // clients
	objects      []int

	informers, watchers, agents int // clients
	span                        int // seconds
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is main with its surroundings as arguments.
func run(ctx context.Context, args []string, in io.Reader, out, complaints io.Writer) error {
	if len(args) == 0 {
		return errors.New("say what to measure: bench lists; see bench lists --help")
	}
	switch args[0] {
	case roleLimit:
		// Ctrl-C in a terminal reaches all processes; this one ends with its input.
		return runLimit(context.WithoutCancel(ctx), in, out)
	case roleClient:
		return runClient(context.WithoutCancel(ctx), in, out)
	case roleWatchers:
		return runWatchers(context.WithoutCancel(ctx), in, out)
	}
	measures := map[string]func(context.Context, settings, *report.Report) error{
		"lists": measureLists, "scale": measureScale, "forward": measureForward,
		"start": measureStart, "newest": measureNewest, "watches": measureWatches,
	}
	measure, ok := measures[args[0]]
	if !ok {
		return fmt.Errorf("nothing is called %q: see bench lists --help", args[0])
	}
	s, err := parse(args[0], args[1:], complaints)
	if err != nil {
		return err
	}
	remove, err := quietTemp()
	if err != nil {
		return err
	}
	defer remove()
	begun := time.Now()
	r := &report.Report{Name: args[0], Out: out, Log: func(format string, args ...any) {
		_, _ = fmt.Fprintf(complaints, "%6s  %s\n", time.Since(begun).Round(time.Second), fmt.Sprintf(format, args...))
	}}
	if err := measure(ctx, s, r); err != nil {
		return err
	}
	if harness.Verdict(0) != 0 {
		return errors.New("listproxy did not end as it should")
	}
	if s.write {
		return r.Write(ctx)
	}
	return nil
}

func parse(what string, args []string, complaints io.Writer) (settings, error) {
	var s settings
	flags := pflag.NewFlagSet(what, pflag.ContinueOnError)
	flags.SetOutput(complaints)
	flags.Usage = func() { _, _ = fmt.Fprint(complaints, usage, flags.FlagUsages()) }
	flags.IntVar(&s.pods, "pods", 5000, "how many pods there are")
	flags.IntVar(&s.page, "page", 500, "how many a page has")
	flags.IntVar(&s.rounds, "rounds", 3, "how often all is measured; medians are shown")
	flags.IntVar(&s.requests, "requests", 200, "how many requests of a sort a round has at most")
	flags.IntVar(&s.megabyte, "megabytes", 200, "how much a sort of request may send in a round, where fewer requests can make it less")
	flags.IntVar(&s.clients, "clients", 4, "how many ask at a time, each on a connection of its own")
	flags.IntSliceVar(&s.sizes, "sizes", []int{10_000, 100_000}, "scale: how many pods there are, one after the other")
	flags.IntVar(&s.small, "small", 1000, "scale: bytes of a pod where there are ever more")
	flags.IntVar(&s.large, "large", 6600, "scale: bytes of a pod elsewhere, of which there are --pods")
	flags.IntVar(&s.rate, "rate", 1000, "scale: changes a second")
	flags.IntVar(&s.seconds, "seconds", 150, "scale: how long they go on")
	flags.IntVar(&s.herd, "herd", 1000, "scale: how many clients ask at once")
	flags.IntSliceVar(&s.objects, "objects", []int{1, 10, 100, 1000, 10_000, 100_000}, "newest: how many objects a list has")
	flags.IntVar(&s.informers, "informers", 1000, "watches: how many start at once")
	flags.IntVar(&s.watchers, "watchers", 1000, "watches: how many are told of the same changes")
	flags.IntVar(&s.agents, "agents", 5000, "watches: how many nodes there are, with an agent each")
	flags.IntVar(&s.span, "span", 10, "watches: for how many seconds there are changes")
	flags.BoolVar(&s.write, "write", false, "write docs/benchmarks.md and the plots beside it")
	flags.StringArrayVar(&s.args, "listproxy", nil, "another `argument` for listproxy, --listproxy=--log-level=debug")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for _, n := range []struct {
		flag         string
		value, least int
	}{
		{"--pods", s.pods, 200},
		{"--page", s.page, 1},
		{"--rounds", s.rounds, 1},
		{"--requests", s.requests, 1},
		{"--megabytes", s.megabyte, 1},
		{"--clients", s.clients, 1},
		{"--small", s.small, 600},
		{"--large", s.large, 600},
		{"--rate", s.rate, 1},
		{"--seconds", s.seconds, 1},
		{"--herd", s.herd, 1},
		{"--informers", s.informers, 1},
		{"--watchers", s.watchers, 1},
		{"--agents", s.agents, 1},
		{"--span", s.span, 2},
	} {
		if n.value < n.least {
			return s, fmt.Errorf("%s %d is too few: give at least %d", n.flag, n.value, n.least)
		}
	}
	for _, n := range s.objects {
		if n < 1 {
			return s, fmt.Errorf("--objects %d is too few: give at least 1", n)
		}
	}
	for _, n := range s.sizes {
		if n < 2000 {
			return s, fmt.Errorf("--sizes %d is too few: give at least 2000", n)
		}
	}
	if s.page*2 > s.pods {
		return s, fmt.Errorf("--page %d is more than half of --pods %d: there would be no page in the middle", s.page, s.pods)
	}
	return s, nil
}
