// Command bench measures listproxy beside kube-apiserver: the same requests at both, in turn, in one run, with a real etcd and
// kube-apiserver on this machine. It prints tables in Markdown. make bench and make demo run it, and docs/benchmarks.md has
// results.
//
// These words have a meaning of their own here:
//
//   - A side is a server to which the same requests go: kube-apiserver, a listproxy, a listproxy of the commit before
//     (--before), or the limit.
//   - The limit is the least that a proxy in Go can cost. This program runs it, as a process of its own.
//   - A row of a table is what a request costs at a side.
//   - A round sends each request to all sides, one after the other.
//
// Most measurements have their own file. rig.go starts processes, client.go sends requests, compare.go measures them at all
// sides, limit.go is the limit, writes.go changes objects, and report.go formats tables.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/listproxy/listproxy/test/harness"
)

const usage = `Usage: bench MEASUREMENT [options]

  lists     whole lists, pages and streaming lists from memory
  forward   what listproxy adds to what it forwards
  newest    lists of the newest state (--consistent-lists)
  watches   events for many watches (--watches)
  crowd     many clients that ask at the same moment
  mix       agents, informers, pagers, pollers, GETs and writes together
  restart   a restart of kube-apiserver before informers and pollers
  load      loads, a start, and memory for objects and for what has changed
  demo      some of it, with a check of each answer; then it stays up

`

// minPods is the smallest --pods. With fewer, some label or namespace in a request would have no pods.
const minPods = 200

// settings are the flags of the command line. Each field has the name of its flag, except args.
type settings struct {
	pods     int
	rounds   int // how often each request is measured at each side
	requests int // how often a request is sent in a round, if its answer is small
	crowd    int // the number of concurrent clients
	seconds  int // how long clients work in the measurements that take a time

	objects []int          // the numbers of config maps in the lists of the measurement newest
	once    bool           // demo ends by itself
	rows    *regexp.Regexp // only requests whose name matches are measured
	before  string         // the path of another program of listproxy, of the commit before
	args    []string       // --listproxy: more arguments for listproxy
}

const (
	// maxPage is the largest number of pods on a page.
	maxPage = 500
	// changesPerSecond is the number of pods that change in a second.
	changesPerSecond = 25
)

// page returns the number of pods on a page. There are at least two pages, so that one can begin in the middle.
func (s settings) page() int { return min(maxPage, s.pods/2) }

// measurements returns the function of each MEASUREMENT of the usage, by name.
func measurements() map[string]func(context.Context, *bench) error {
	return map[string]func(context.Context, *bench) error{
		"lists": runLists, "forward": runForward, "newest": runNewest, "watches": runWatches,
		"crowd": runCrowd, "mix": runMix, "restart": runRestart, "load": runLoad, "demo": runDemo,
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)   // a second Ctrl-C does not wait
	klog.SetLogger(logr.Discard()) // client-go would log watches that are cut off at the end of a row
	var err error
	if slices.Contains(os.Args, limitCommand) { // addLimit has started this process
		err = serveLimit(ctx, os.Args[1:])
	} else {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run runs the measurement that the arguments name.
func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	s, err := parse(args, progress)
	if err != nil {
		return err
	}
	name := args[0]
	begun := time.Now()
	b := &bench{settings: s, out: out, connections: map[string]*http.Client{}, log: func(format string, args ...any) {
		_, _ = fmt.Fprintf(progress, "%6s  %s\n", time.Since(begun).Round(time.Second), fmt.Sprintf(format, args...))
	}}
	err = b.open(ctx)
	if err == nil {
		err = measurements()[name](ctx, b)
	}
	if err = errors.Join(err, b.close()); err != nil {
		return err
	}
	const passed = 0
	if harness.KillRunning(passed) != passed {
		return errors.New("a listproxy did not end as it should")
	}
	return nil
}

// parse parses the command line, and writes its errors and help to complaints.
func parse(args []string, complaints io.Writer) (s settings, err error) {
	flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	flags.SetOutput(complaints)
	flags.Usage = func() { _, _ = fmt.Fprint(complaints, usage, flags.FlagUsages()) }
	counts := map[string]*int{} // by flag; each must be at least 1
	count := func(value *int, name string, byDefault int, text string) {
		flags.IntVar(value, name, byDefault, text)
		counts[name] = value
	}
	count(&s.pods, "pods", 3000, "how many pods there are, of 7 to 8 kB in JSON")
	count(&s.rounds, "rounds", 3, "how often each request is measured at each side, in turn")
	count(&s.requests, "requests", 50, "how often it is sent in a round, if it is small; at least three times")
	count(&s.crowd, "crowd", 100, "crowd, mix, watches, restart: how many clients there are (mix: agents; restart: informers)")
	count(&s.seconds, "seconds", 20, "mix, watches, restart, load: for how long")
	flags.IntSliceVar(&s.objects, "objects", []int{1, 10, 100, 1000, 10_000}, "newest: how many config maps a list has")
	flags.StringVar(&s.before, "before", "",
		"lists, forward, newest, load: another `program` of listproxy, as of the commit before, that is measured beside this one")
	rows := flags.String("rows", "", "lists, forward, newest: only requests whose name this `regexp` matches")
	flags.StringArrayVar(&s.args, "listproxy", nil, "another `argument` for listproxy, as --listproxy=--log-level=debug")
	flags.BoolVar(&s.once, "once", false, "demo: end by itself")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.rows, err = regexp.Compile(*rows); err != nil {
		return s, fmt.Errorf("--rows: %w", err)
	}
	beginsWithMeasurement := flags.NArg() == 1 && args[0] == flags.Arg(0)
	if !beginsWithMeasurement || measurements()[args[0]] == nil {
		names := strings.Join(slices.Sorted(maps.Keys(measurements())), ", ")
		return s, fmt.Errorf("say first what to measure (one of %s), not %q: see bench --help", names, strings.Join(flags.Args(), " "))
	}
	for name, n := range counts {
		if *n < 1 {
			return s, fmt.Errorf("--%s %d is too few: give at least 1", name, *n)
		}
	}
	if len(s.objects) == 0 || slices.Min(s.objects) < 1 {
		return s, fmt.Errorf("--objects %v: give numbers of at least 1", s.objects)
	}
	if s.pods < minPods {
		return s, fmt.Errorf("--pods %d is too few: give at least %d", s.pods, minPods)
	}
	return s, nil
}
