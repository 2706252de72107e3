package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
)

const usage = `Usage: demo [--pods N] [--once] [--jaeger]

Starts a real etcd, kube-apiserver and listproxy on 127.0.0.1, fills them with pods, and asks
both for the same lists. Then it shows what --consistent-lists and --watches bring: informers that
start at once, and lists of the newest state, with the CPU of both. Then it stays up to be played
with, until Ctrl-C.

Run it inside the repository. The first run builds etcd, kube-apiserver and kubectl into bin/,
which takes some minutes.

Options:
  --pods N       how many pods to create (default 3000)
  --once         end by itself: with 1 if an answer differed, or did not come from memory
                 although it could have
  --jaeger       start Jaeger too, and say where the traces are
  --build-only   build what the demo runs, and end
  --help         print this and exit
`

// Exit codes, as shells know them.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// settings are the command line.
type settings struct {
	pods      int
	once      bool
	buildOnly bool
	jaeger    bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main with its surroundings as arguments.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run prints errors and help itself
	var s settings
	flags.IntVar(&s.pods, "pods", 3000, "")
	flags.BoolVar(&s.once, "once", false, "")
	flags.BoolVar(&s.buildOnly, "build-only", false, "")
	flags.BoolVar(&s.jaeger, "jaeger", false, "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		say(stdout, usage)
		return exitOK
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case err == nil && s.pods < 1:
		err = fmt.Errorf("--pods %d: at least 1", s.pods)
	}
	if err != nil {
		say(stderr, "demo: %v\nTry demo --help.\n", err)
		return exitUsage
	}

	ok, err := show(ctx, s, stdout)
	switch {
	case ctx.Err() != nil && !s.once:
		return exitOK // Ctrl-C is how it ends
	case err != nil:
		say(stderr, "demo: %v\n", err)
		return exitFailed
	case !ok:
		return exitFailed
	}
	return exitOK
}

// show runs the demo from beginning to end and reports whether all was as promised.
func show(ctx context.Context, s settings, out io.Writer) (ok bool, err error) {
	if s.buildOnly {
		if _, err := binaries.Build(ctx, logTo(out)); err != nil {
			return false, err
		}
		_, err := binaries.Tool(ctx, logTo(out), "jaeger") // tests need it
		return true, err
	}
	sc, err := open(ctx, s, out)
	if err != nil {
		return false, err
	}
	defer sc.close()
	if err := sc.load(ctx, s.pods); err != nil {
		return false, err
	}
	r := &report{out: out}
	if err := sc.present(ctx, r); err != nil {
		return false, err
	}
	r.print()
	allHits, err := sc.switches(ctx)
	if err != nil {
		return false, err
	}
	if !allHits {
		say(out, "FAILED: with the switches, some answers did not come from memory\n")
	}
	if s.jaeger {
		if err := sc.trace(ctx); err != nil {
			return false, err
		}
	}
	if s.once {
		return r.ok() && allHits, nil
	}
	if err := sc.invite(ctx); err != nil {
		return false, err
	}
	<-ctx.Done()
	say(out, "\nStopping, and removing %s\n", sc.cp.Dir())
	return r.ok() && allHits, nil
}

// logTo returns a function that prints lines.
func logTo(out io.Writer) func(string) {
	return func(line string) { say(out, "%s\n", line) }
}

// say prints; a reader of our output who went away is no reason to stop.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
