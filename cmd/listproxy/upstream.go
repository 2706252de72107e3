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

// clientConfig returns the configuration of listproxy's own requests. It is that of --kubeconfig or, without the flag,
// that of the pod.
func (o *upstreamOptions) clientConfig() (*rest.Config, error) {
	if o.kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("without --kubeconfig, listproxy uses the account of its pod (and never $KUBECONFIG, which "+
				"is yours): %w", err)
		}
		return identified(cfg), nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", o.kubeconfig, err)
	}
	return identified(cfg), nil
}

// apiServer has the clients and transports with which listproxy reaches the API server.
type apiServer struct {
	ownConfig  *rest.Config // with listproxy's own credentials; health observes the answers to its requests
	health     *upstream.Health
	transports *upstream.Transports // for requests with callers' credentials
}

// newAPIServer returns the clients and transports to the API server that config names. config has listproxy's own
// credentials. If impersonates is true, they are also used to impersonate callers with verified certificates.
func newAPIServer(config *rest.Config, impersonates bool, log *slog.Logger) (apiServer, error) {
	transports, err := upstream.New(config)
	if err != nil {
		return apiServer{}, err
	}
	if impersonates {
		if err := transports.Impersonate(config); err != nil {
			return apiServer{}, err
		}
	}
	health, err := upstream.NewHealth(config, log)
	if err != nil {
		return apiServer{}, err
	}
	transports.OnAnswer(health.Answered)
	return apiServer{ownConfig: health.Watch(config), health: health, transports: transports}, nil
}

// setPingEnv sets HTTP2_READ_IDLE_TIMEOUT_SECONDS and HTTP2_PING_TIMEOUT_SECONDS to 5, unless the environment has them:
// the time without a frame after which a ping is sent, and the time to wait for its answer. client-go's HTTP/2
// connections can be configured in no other way; their defaults are 30 and 15 seconds. Until a half-open connection is
// closed, lists of its feeds are forwarded, and a changed definition or a revoked right goes unnoticed.
//
// It must be called before the first connection is made. Connections for callers' requests have settings of their own.
func setPingEnv() {
	for _, name := range []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, "5") // it fails only for invalid names
		}
	}
}

// identified sets the User-Agent of cfg, forbids its exec plugin to prompt, and returns cfg.
func identified(cfg *rest.Config) *rest.Config {
	cfg.UserAgent = userAgent("listproxy")
	if plugin := cfg.ExecProvider; plugin != nil {
		// Nobody is there to answer a prompt. client-go refuses a plugin that cannot do without.
		plugin.StdinUnavailable = true
		plugin.StdinUnavailableMessage = "listproxy's own account needs a plugin that asks nothing"
	}
	return cfg
}
