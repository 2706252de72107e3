// Command controlplane runs etcd and kube-apiserver on loopback until it is told to stop, and
// prints the kubeconfigs to use them with. It is the command for people around the package
// test/controlplane.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"

	"github.com/listproxy/listproxy/test/controlplane"
)

const usage = `Usage: controlplane [--dir DIR]

Starts a real etcd and kube-apiserver on 127.0.0.1, with several users of different rights,
and prints a kubeconfig for each. There is no scheduler and no kubelet: pods stay Pending.

Run it inside the repository. The first run builds etcd, kube-apiserver and kubectl into bin/,
which takes some minutes; later ones are ready in seconds.

Ctrl-C (or SIGTERM) stops everything and removes what was made.

Options:
  --dir DIR   keep data, logs and kubeconfigs in DIR while running. DIR must be empty or not
              exist, and is removed at the end. (default: a new directory for temporary files)
  --help      print this and exit
`

// Exit codes, as shells know them.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main with its surroundings as arguments. It returns when ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run prints errors and help itself
	dir := flags.String("dir", "", "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		say(stdout, usage)
		return exitOK
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
		fallthrough
	case err != nil:
		say(stderr, "controlplane: %v\nTry controlplane --help.\n", err)
		return exitUsage
	}

	cp, err := controlplane.Start(ctx, controlplane.Options{
		Dir: *dir,
		Log: func(line string) { say(stderr, "%s\n", line) },
	})
	if err != nil {
		say(stderr, "%v\n", err)
		return exitFailed
	}
	defer cp.Stop()
	describe(stdout, cp)
	<-ctx.Done()
	say(stderr, "stopping, and removing %s\n", cp.Dir())
	return exitOK
}

// describe prints what runs and how to use it.
func describe(w io.Writer, cp *controlplane.ControlPlane) {
	kubectl := cp.Binaries().Kubectl
	say(w, "\nkube-apiserver  %s\netcd            %s\nlogs            %s\n\n",
		cp.URL(), cp.EtcdURL(), filepath.Join(cp.Dir(), "*.log"))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	say(table, "USER\tMAY\n")
	for _, u := range controlplane.Users() {
		say(table, "%s\t%s\n", u.Name, u.Rights)
	}
	_ = table.Flush()
	say(w, "\nBe one of them in another terminal:\n\n")
	for _, u := range controlplane.Users() {
		say(w, "  export KUBECONFIG=%s\n", cp.KubeconfigPath(u.Name))
	}
	say(w, "\nThen, for example:\n\n  %s get namespaces\n  %s run hello --image=hello\n\nCtrl-C stops everything.\n",
		kubectl, kubectl)
}

// say prints; a reader of our output who went away is no reason to stop.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
