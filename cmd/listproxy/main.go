// Command listproxy is a reverse proxy in front of kube-apiserver that answers LISTs itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal begins an end in order. A second one ends the process at once, as it does
	// without handlers.
	context.AfterFunc(ctx, stop)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "listproxy:", err)
		os.Exit(exitCode(err))
	}
}

func newCommand() *cobra.Command {
	o := defaultOptions()
	cmd := &cobra.Command{
		Use:   "listproxy",
		Short: "Answers LISTs in front of kube-apiserver, from memory, byte for byte",
		Long: `listproxy stands in front of kube-apiserver. It answers lists from memory, byte for byte as
kube-apiserver would, and forwards everything else untouched. The response header
Cache-Status says which.

Try it on your machine, with a kubeconfig of an account that may read (README.md says how to
make one), and in another terminal:

  listproxy --kubeconfig listproxy.kubeconfig --bind-address 127.0.0.1

  (umask 077; listproxy kubeconfig > proxy.kubeconfig)
  listproxy try --kubeconfig proxy.kubeconfig`,
		Args:          noSuchCommand,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return usageError{err}
			}
			return o.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	cmd.SetVersionTemplate("listproxy {{.Version}}\n")
	cmd.Flags().SortFlags = false
	o.addFlags(cmd.Flags())
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usageError{suggestFlag(c.Flags(), err)} })
	cmd.AddCommand(newKubeconfigCommand(), newPolicyCommand(), newStatusCommand(), newTryCommand(), newAnalyzeCommand())
	for _, c := range append(cmd.Commands(), cmd) {
		addCompletion(c)
	}
	cmd.SuggestionsMinimumDistance = 2
	showSections(cmd)
	return cmd
}

// The exit codes.
const (
	exitFailed = 1 // what was to be done was not, or not well
	exitUsage  = 2 // the command line cannot be understood
)

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exitCode is the process's exit code after an error.
func exitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}

// usageArgs makes a mistake in arguments one of the command line.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// wholeArgs wants so many arguments. Whoever gives none is shown how the command is used.
func wholeArgs(n int) cobra.PositionalArgs {
	return usageArgs(func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return fmt.Errorf("%s takes %d arguments, not %d\n\n%s", cmd.CommandPath(), n, len(args), strings.TrimSpace(cmd.UsageString()))
	})
}

// noSuchCommand refuses what is no command, and says which one was probably meant.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		return usageError{fmt.Errorf("there is no command %q: did you mean %s?", args[0], meant[0])}
	}
	return usageError{fmt.Errorf("there is no command %q: --help lists them", args[0])}
}

// userAgent is how one of our programs calls itself: a product and a version as in RFC 9110.
func userAgent(product string) string { return product + "/" + strings.Trim(version(), "()") }

// release is set by the linker in released builds: -ldflags "-X main.release=v1.2.3".
var release string

// version is the release, or else what the Go toolchain knows of the source.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
