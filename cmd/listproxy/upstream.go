package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/listproxy/listproxy/proxy/upstream"
)

// upstreamOptions has the kubeconfig with the API server's address and listproxy's own credentials.
type upstreamOptions struct{ kubeconfig string }

// AddFlags implements optionGroup.
func (o *upstreamOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"`file` with the API server's address and listproxy's own credentials; without it, the in-cluster configuration")
}

// Validate implements optionGroup.
func (o *upstreamOptions) Validate() error { return nil }

// newAPIServer returns the clients and transports to the API server that config names. config has listproxy's own
// credentials. With impersonates, listproxy also uses them to impersonate callers whose certificates it has verified.
func newAPIServer(config *rest.Config, impersonates bool, log *slog.Logger) (api apiServer, err error) {
	if api.transports, err = upstream.New(config); err != nil {
		return api, err
	}
	if impersonates {
		if err := api.transports.Impersonate(config); err != nil {
			return api, err
		}
	}
	if api.health, err = upstream.NewHealth(config, log); err != nil {
		return api, err
	}
	api.transports.OnAnswer(api.health.Answered)
	api.own = api.health.Watch(config)
	return api, nil
}

// clientConfig returns the configuration of listproxy's own requests, from --kubeconfig or that of the pod.
func (o *upstreamOptions) clientConfig() (*rest.Config, error) {
	if o.kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("without --kubeconfig listproxy uses the account of its pod, and never $KUBECONFIG, which is "+
				"yours: %w", err)
		}
		return identified(cfg), nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", o.kubeconfig, err)
	}
	return identified(cfg), nil
}

// setOwnPings sets the times of HTTP/2 pings on listproxy's own connections, in seconds, unless they are set:
// the time without a frame after which a ping is sent, and the time to wait for its answer.
// k8s.io/apimachinery/pkg/util/net takes them from nowhere else, and its defaults are 30 and 15. Until a half-open
// connection is closed, lists of its feeds are forwarded, and a changed definition or a revoked right goes unnoticed.
//
// It must be called before the first connection is made. Callers' requests have connections and times of their own.
func setOwnPings() {
	for _, name := range []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, "5") // it fails for invalid names only
		}
	}
}

// identified sets the User-Agent of cfg and returns it. An exec plugin of cfg may not prompt.
func identified(cfg *rest.Config) *rest.Config {
	cfg.UserAgent = userAgent("listproxy")
	if plugin := cfg.ExecProvider; plugin != nil {
		// Nobody is there to answer a prompt. client-go refuses a plugin that always needs one.
		plugin.StdinUnavailable = true
		plugin.StdinUnavailableMessage = "listproxy's own account needs a plugin that asks nothing"
	}
	return cfg
}
