// Command listproxy is a reverse proxy in front of kube-apiserver that answers LISTs itself.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/cmd/listproxy/analyze"
	"github.com/listproxy/listproxy/cmd/listproxy/client"
	"github.com/listproxy/listproxy/proxy/serve"
)

func main() {
	ctx, stop := untilSignal()
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "listproxy:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "listproxy",
		Short: "Answers LISTs in front of kube-apiserver, from memory, byte for byte",
		Long: `listproxy stands in front of kube-apiserver. It answers lists (and watches with --watches) from
memory, byte for byte as kube-apiserver would, and forwards everything else unchanged. The header
Cache-Status says where an answer came from.

Try it on your machine, with a kubeconfig of an account that may read (README.md says how to
make one):

  listproxy --kubeconfig listproxy.kubeconfig --bind-address 127.0.0.1

Then, in another terminal:

  (umask 077; listproxy kubeconfig > proxy.kubeconfig)
  listproxy try --kubeconfig proxy.kubeconfig`,
		Version: version(),
		PreRunE: func(*cobra.Command, []string) error { return o.Validate() },
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.ErrOrStderr()) },
		// main prints the error, without the usage.
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetVersionTemplate("listproxy {{.Version}}\n")
	cmd.Flags().SortFlags = false
	o.AddFlags(cmd.Flags())
	defaultCA := serve.TrustFile(serve.DefaultDir())
	cmd.AddCommand(
		analyze.NewCommand(readPolicyFlag),
		client.NewKubeconfigCommand(defaultCA),
		client.NewStatusCommand(),
		client.NewTryCommand(userAgent("listproxy-try")),
		newPolicyCommand(),
	)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return withHelp(err) })
	showSections(cmd, &o.sections)
	return cmd
}

// withHelp adds the flag's help to an error about a value that the flag does not take. It returns other errors unchanged.
func withHelp(err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		_, help := pflag.UnquoteUsage(invalid.GetFlag())
		return fmt.Errorf("%w; --%s: %s", err, invalid.GetFlag().Name, help)
	}
	return err
}

// userAgent returns the User-Agent of requests that listproxy sends for itself: a product and a version. The version
// must be a token (RFC 9110), so "(devel)" loses its parentheses.
func userAgent(product string) string { return product + "/" + strings.Trim(version(), "()") }

// release is the version of a released build, and empty in other builds. The linker sets it:
// -ldflags "-X main.release=v1.2.3".
var release string

// version returns the release. Other builds return the version of the source that the Go toolchain has recorded.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
