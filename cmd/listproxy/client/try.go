package client

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

const (
	// defaultPath is the path of a small list, the namespaces.
	defaultPath = "/api/v1/namespaces?resourceVersion=0"
	// answerTimeout bounds the time for the answer to the last request, which may begin just before --wait is over. listproxy
	// itself may have to wait for kube-apiserver.
	answerTimeout = time.Minute
)

// NewTryCommand returns the command that requests a list and says where the answer came from. userAgent is the
// User-Agent of the requests.
func NewTryCommand(userAgent string) *cobra.Command {
	var kubeconfig, contextName string
	path := defaultPath // PreRunE replaces it with the argument, if any
	var wait time.Duration
	var allowForwarded bool
	cmd := &cobra.Command{
		Use:   "try [PATH]",
		Short: "Ask for a list, and say where the answer came from",
		Long: `Asks for a list as the client that a kubeconfig describes, and says where the answer came
from: from memory, or from kube-apiserver and why. While the reason is transient (the
resource is being loaded, for example), it asks again, for --wait at most.
The exit code is 0 only if the list came from memory.

  (umask 077; listproxy kubeconfig > proxy.kubeconfig)
  listproxy try --kubeconfig proxy.kubeconfig
  listproxy try --kubeconfig proxy.kubeconfig '/api/v1/namespaces/default/pods?resourceVersion=0'`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				path = args[0]
			}
			if _, err := url.ParseRequestURI(path); err != nil || !strings.HasPrefix(path, "/") {
				return fmt.Errorf("%q is not a path like %s", path, defaultPath)
			}
			if wait < 0 {
				return fmt.Errorf("--wait %v is negative: give a duration, or 0 to ask once", wait)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := kubeconfigLoader(kubeconfig, contextName).ClientConfig()
			if err != nil {
				return fmt.Errorf("the kubeconfig of the client (--kubeconfig, or %s): %w", usualKubeconfig, err)
			}
			cfg.UserAgent = userAgent
			client, err := kubehttp.NewClient(cfg)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), wait+answerTimeout)
			defer cancel()
			p := poller{client: client, url: strings.TrimSuffix(cfg.Host, "/") + path, out: cmd.OutOrStdout()}
			err = p.run(ctx, wait)
			if _, forwarded := errors.AsType[forwardedError](err); forwarded && allowForwarded {
				return nil
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&kubeconfig, "kubeconfig", "",
		"`file` of a client of listproxy; without it, "+usualKubeconfig)
	fs.StringVar(&contextName, "context", "", "`name` of the context; without it, the current one")
	fs.DurationVar(&wait, "wait", 30*time.Second,
		"how long to ask again while the list is forwarded for a transient reason; 0: ask once")
	fs.BoolVar(&allowForwarded, "allow-forwarded", false, "exit with 0, too, if the list was forwarded")
	return cmd
}
