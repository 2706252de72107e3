package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/proxy/admin"
)

// adminConfig returns the configuration of the admin port, which shows the state of a.
func (o *options) adminConfig(a *app, instruments *instruments) admin.Config {
	address := a.transports.URL()
	return admin.Config{
		Ready:   a.ready,
		Metrics: a.metrics,
		Status: &admin.Source{
			Version:     version(),
			Upstream:    address.Scheme + "://" + address.Host,
			Started:     time.Now(),
			Ready:       a.ready,
			Metrics:     instruments.metrics,
			Collections: a.collections,
			Staleness:   o.cache.staleness,
			Window:      o.window,
		},
		Flags: flagsInForce(o.flags),
		Hosts: ownNames(address),
	}
}

// window returns the length of the history that is wanted for a resource.
func (o *options) window(gvr schema.GroupVersionResource) time.Duration {
	if window := o.cache.policy.RuleFor(gvr.Group, gvr.Resource).HistoryWindow; window > 0 {
		return window
	}
	return o.cache.history
}

// flagsInForce returns all flags as name=value, in the order of help. No value is a secret: secrets are in files,
// and flags only name those.
func flagsInForce(fs *pflag.FlagSet) []string {
	var flags []string
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" {
			flags = append(flags, f.Name+"="+f.Value.String())
		}
	})
	return flags
}

// adminOptions has the address of the admin port.
type adminOptions struct {
	bindAddress string
}

// AddFlags implements optionGroup.
func (o *adminOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.bindAddress, "admin-bind-address", o.bindAddress,
		"`address` of health checks (/livez, /readyz), metrics (/metrics) and the status page (/statusz, /flagz), plain HTTP")
}

// Validate implements optionGroup.
func (o *adminOptions) Validate() error {
	if _, _, err := net.SplitHostPort(o.bindAddress); err != nil {
		return fmt.Errorf("--admin-bind-address %q: %w: give address:port", o.bindAddress, err)
	}
	return nil
}

// ownNames returns the hosts that requests to the admin port may name, besides those that [admin.Config] always
// allows: the machine's, and the API server's. A request through the API server's proxy (kubectl get --raw
// …/pods/NAME:8081/proxy/statusz) still names the API server.
func ownNames(upstream *url.URL) []string {
	names := []string{upstream.Hostname()}
	if machine, err := os.Hostname(); err == nil {
		names = append(names, machine)
	}
	return names
}
