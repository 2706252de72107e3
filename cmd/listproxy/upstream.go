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
type upstreamOptions struct {
	kubeconfig string
}

// AddFlags implements optionGroup.
func (o *upstreamOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "",
		"`file` with the API server's address and listproxy's own credentials; without it, the in-cluster configuration")
}

// Validate implements optionGroup.
func (o *upstreamOptions) Validate() error { return nil }

// clientConfig returns the configuration of listproxy's own requests: that of --kubeconfig or, without the flag, the pod's.
func (o *upstreamOptions) clientConfig() (*rest.Config, error) {
	cfg, err := o.readConfig()
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = userAgent("listproxy")
	forbidPrompts(cfg)
	return cfg, nil
}

// readConfig reads the file that --kubeconfig names or, without the flag, the pod's configuration.
func (o *upstreamOptions) readConfig() (*rest.Config, error) {
	if o.kubeconfig != "" {
		cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig %s: %w", o.kubeconfig, err)
		}
		return cfg, nil
	}
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("there is no --kubeconfig and no in-cluster configuration ($KUBECONFIG is not read): %w", err)
	}
	return cfg, nil
}

// forbidPrompts keeps the exec plugin of cfg, if any, from prompting, since nobody is there to answer. client-go refuses a
// plugin that must prompt.
func forbidPrompts(cfg *rest.Config) {
	if plugin := cfg.ExecProvider; plugin != nil {
		plugin.StdinUnavailable = true
		plugin.StdinUnavailableMessage = "nobody can answer the questions of listproxy's exec plugin"
	}
}

// apiServer is the API server behind listproxy: two ways to send it requests, and its health.
type apiServer struct {
	ownConfig  *rest.Config         // for listproxy's own requests
	transports *upstream.Transports // for callers' requests
	health     *upstream.Health     // sees the answers to all of these requests
}

// newAPIServer returns the apiServer for config, which has listproxy's own credentials. With --client-ca-file, listproxy also
// uses these credentials to impersonate callers who have client certificates.
func (o *options) newAPIServer(config *rest.Config, log *slog.Logger) (apiServer, error) {
	impersonates := o.callers.clientCA != nil
	transports, err := upstream.New(config, impersonates)
	if err != nil {
		return apiServer{}, err
	}
	health, err := upstream.NewHealth(config, log)
	if err != nil {
		return apiServer{}, err
	}
	transports.OnAnswer(health.RecordCallerAnswer)
	observedConfig := health.Observe(config)
	return apiServer{ownConfig: observedConfig, transports: transports, health: health}, nil
}

// setPingEnv makes client-go notice within 10 seconds, instead of 45, that an HTTP/2 connection is half-open. Until then, the
// feeds on such a connection hear nothing: lists are forwarded, and nobody notices a changed definition or a revoked right.
//
// client-go sends a ping after a time without a frame, and then waits for the answer. Both times can be set only in the
// environment. setPingEnv sets each to 5 seconds unless the environment has it. It must be called before the first connection
// is made. Connections for callers' requests have settings of their own.
func setPingEnv() {
	for _, name := range []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, "5") // it fails only for invalid names
		}
	}
}
