package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/listproxy/listproxy/proxy/admin"
)

// operatorsPort is what the admin port shows.
func (o *options) operatorsPort(a *app, observing *observing) admin.Config {
	address := a.transports.URL()
	return admin.Config{
		Ready:   a.ready,
		Metrics: a.metrics,
		Status: &admin.Source{
			Version:     version(),
			Upstream:    address.Scheme + "://" + address.Host,
			Started:     time.Now(),
			Ready:       a.ready,
			Metrics:     observing.metrics,
			Collections: a.collections,
			Staleness:   o.cache.staleness,
			Window:      o.window,
		},
		Flags:     flagsInForce(o.flags),
		Profiling: o.admin.profiling,
		Hosts:     o.admin.names(address),
	}
}

// window is how far back the history of a resource is to reach.
func (o *options) window(gvr schema.GroupVersionResource) time.Duration {
	if window := o.cache.policy.For(gvr.Group, gvr.Resource).HistoryWindow; window > 0 {
		return window
	}
	return o.cache.history
}

// flagsInForce returns all flags as name=value, in the order of help. None of them has a secret for a
// value: they name files.
func flagsInForce(fs *pflag.FlagSet) []string {
	var flags []string
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" {
			flags = append(flags, f.Name+"="+f.Value.String())
		}
	})
	return flags
}

// adminOptions say where the admin port is, what it has, and who may look at its pages, beside those
// who use an address or a name that nobody elsewhere can own.
type adminOptions struct {
	bindAddress string
	hosts       []string
	profiling   bool
}

// AddFlags implements optionGroup.
func (o *adminOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.bindAddress, "admin-bind-address", o.bindAddress,
		"`address` of health checks (/livez, /readyz), metrics (/metrics) and\nthe status page (/statusz, /flagz), plain HTTP")
	fs.StringSliceVar(&o.hosts, "admin-hosts", o.hosts,
		"more host `names` that clients of --admin-bind-address may use, besides IP addresses,\n"+
			"localhost, the machine's name, the API server's, and those of Services")
	fs.BoolVar(&o.profiling, "debug-pprof", o.profiling, "serve profiles of the process (/debug/pprof/) on --admin-bind-address")
}

// Validate implements optionGroup.
func (o *adminOptions) Validate() error {
	if _, _, err := net.SplitHostPort(o.bindAddress); err != nil {
		return fmt.Errorf("--admin-bind-address %q: %w: give address:port", o.bindAddress, err)
	}
	for _, host := range o.hosts {
		if len(validation.IsDNS1123Subdomain(strings.ToLower(host))) > 0 {
			return fmt.Errorf("--admin-hosts %q is not a name of a host: write it as in the DNS, listproxy.example.com, without "+
				"a scheme, a port or a wildcard", host)
		}
	}
	return nil
}

// names are all names that the port is known by: with --admin-hosts the machine's own, and that of
// the API server, which its proxy leaves in requests (kubectl get --raw
// …/pods/NAME:8081/proxy/statusz).
func (o *adminOptions) names(upstream *url.URL) []string {
	names := append([]string{upstream.Hostname()}, o.hosts...)
	if machine, err := os.Hostname(); err == nil {
		names = append(names, machine)
	}
	return names
}
