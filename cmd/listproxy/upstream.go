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
	upstreams  []string
	settle     time.Duration

	addresses []string // of --upstream, by Validate
}

func defaultUpstreamOptions() upstreamOptions { return upstreamOptions{settle: defaultSettle} }

// AddFlags implements optionGroup.
func (o *upstreamOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"`file` with the API server's address and listproxy's own credentials;\nwithout it, the in-cluster configuration")
	fs.StringSliceVar(&o.upstreams, "upstream", o.upstreams,
		"`URLs` of the cluster's API servers, https://host:port, used instead of the address in --kubeconfig;\n"+
			"the path, the credentials, and the name for which their certificates must be valid still come from there")
	fs.DurationVar(&o.settle, "upstream-settle", o.settle,
		"how long all lists are forwarded after the API servers behind the upstream changed;\n"+leastSettleUsage())
}

// Validate implements optionGroup.
func (o *upstreamOptions) Validate() (err error) {
	if o.addresses, err = upstream.ParseEndpoints(o.upstreams); err != nil {
		return fmt.Errorf("--upstream: %w", err)
	}
	return o.checkSettle()
}

// reach returns the ways to the API server that the flags name.
func (o *upstreamOptions) reach(log *slog.Logger) (api apiServer, err error) {
	if api.config, err = o.clientConfig(); err != nil {
		return api, err
	}
	if api.endpoints, err = o.endpoints(api.config, log); err != nil {
		return api, err
	}
	api.transports, err = upstream.New(api.config)
	return api, err
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

// endpoints returns the addresses that --upstream gives, and makes all clients of cfg use them; nil
// if there are none.
func (o *upstreamOptions) endpoints(cfg *rest.Config, log *slog.Logger) (*upstream.Endpoints, error) {
	if len(o.addresses) == 0 {
		return nil, nil
	}
	endpoints, err := upstream.NewEndpoints(cfg, o.addresses, log)
	if err != nil {
		return nil, fmt.Errorf("--upstream: %w", err)
	}
	endpoints.Use(cfg)
	log.Info("the API servers are reached at the addresses of --upstream", "endpoints", o.addresses)
	return endpoints, nil
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

// leastSettle is the shortest --upstream-settle that is safe. each: the API servers are asked one
// by one (--upstream).
func leastSettle(each bool) time.Duration {
	if each {
		return discovery.LeastSettle(upstream.SlowestCheck)
	}
	return discovery.LeastSettle(discovery.SlowestLook)
}

// heardWithin is how long, at most, a change of the API servers goes unnoticed.
func (o *upstreamOptions) heardWithin() time.Duration {
	if len(o.upstreams) > 0 {
		return upstream.SlowestNews
	}
	return discovery.SlowestNews
}

// checkSettle refuses an --upstream-settle that is over before two versions that serve at the same
// time are noticed again.
func (o *upstreamOptions) checkSettle() error {
	each := len(o.upstreams) > 0
	least, where := leastSettle(each), "without --upstream"
	if each {
		where = "with --upstream"
	}
	if anySettle != "" {
		least = 0
	}
	if o.settle < least {
		return fmt.Errorf("--upstream-settle %v is too short: lists could come from memory between two checks of API servers of "+
			"different versions, "+
			"and mix what they write: give at least %v (%s), or leave it out (%v)", o.settle, least, where, defaultSettle)
	}
	return nil
}

// leastSettleUsage says in the help what is refused.
func leastSettleUsage() string {
	return fmt.Sprintf("at least %v, and with --upstream %v", leastSettle(false), leastSettle(true))
}
