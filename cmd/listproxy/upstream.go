package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/listproxy/listproxy/proxy/discovery"
	"github.com/listproxy/listproxy/proxy/upstream"
)

// upstreamOptions say where the API server is, and what listproxy itself is allowed there.
type upstreamOptions struct {
	kubeconfig string
	settle     time.Duration
}

func defaultUpstreamOptions() upstreamOptions { return upstreamOptions{settle: defaultSettle} }

// AddFlags implements optionGroup.
func (o *upstreamOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"`file` with the API server's address and listproxy's own credentials;\nwithout it, the in-cluster configuration")
	fs.DurationVar(&o.settle, "upstream-settle", o.settle,
		"how long all lists are forwarded after the API servers behind the upstream changed;\nat least "+leastSettle().String())
}

// Validate implements optionGroup.
func (o *upstreamOptions) Validate() error { return o.checkSettle() }

// reach returns the ways to the API server that the flags name.
func (o *upstreamOptions) reach(log *slog.Logger) (api apiServer, err error) {
	if api.config, err = o.clientConfig(); err != nil {
		return api, err
	}
	if api.transports, err = upstream.New(api.config); err != nil {
		return api, err
	}
	if api.health, err = upstream.NewHealth(api.config, log); err != nil {
		return api, err
	}
	api.own = api.health.Watch(api.config)
	return api, nil
}

// clientConfig says where the API server is, and has listproxy's own credentials.
func (o *upstreamOptions) clientConfig() (*rest.Config, error) {
	if o.kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no --kubeconfig is given, and this is not a pod of a cluster: give listproxy a kubeconfig with an account " +
				"of its own ($KUBECONFIG is yours, and is not used)")
		}
		if err != nil {
			return nil, fmt.Errorf("the account of this pod: %w", err)
		}
		return identified(cfg), nil
	}
	if err := checkLogin(o.kubeconfig); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", o.kubeconfig, err)
	}
	return identified(cfg), nil
}

func identified(cfg *rest.Config) *rest.Config {
	cfg.UserAgent = userAgent("listproxy")
	if plugin := cfg.ExecProvider; plugin != nil {
		// Nobody is there to answer what a plugin asks. One that always asks is refused.
		plugin.StdinUnavailable = true
		plugin.StdinUnavailableMessage = "listproxy's own account needs a plugin that asks nothing"
	}
	return cfg
}

// defaultSettle is the --upstream-settle where none is given.
const defaultSettle = 15 * time.Second

// anySettle lets --upstream-settle be shorter than is safe, if it is not empty. The linker sets it
// in the binaries that tests run (package test/harness), so that they need not wait for long after
// a change of API servers: -ldflags "-X main.anySettle=yes". No flag and no environment variable
// sets it, so a released listproxy always checks.
var anySettle string

// leastSettle is the shortest --upstream-settle that is safe.
func leastSettle() time.Duration { return discovery.LeastSettle(discovery.SlowestLook) }

// checkSettle refuses an --upstream-settle that is over before two versions that serve at the same
// time are noticed again.
func (o *upstreamOptions) checkSettle() error {
	if least := leastSettle(); o.settle < least && anySettle == "" {
		return fmt.Errorf("--upstream-settle %v is too short: lists could come from memory between two checks of API servers of "+
			"different versions, and mix what they write: give at least %v, or leave it out (%v)", o.settle, least, defaultSettle)
	}
	return nil
}
