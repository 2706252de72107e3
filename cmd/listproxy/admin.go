package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/telemetry"
)

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

// adminConfig returns the configuration of the admin port, and registers the metrics of the state that the port shows.
func (o *options) adminConfig(a *app, requestLimits *limits.Limits, instruments *instruments) admin.Config {
	upstream := a.transports.URL()
	source := &admin.Source{
		Version:      version(),
		Address:      upstream.Scheme + "://" + upstream.Host,
		Started:      time.Now(),
		Draining:     a.draining.Load,
		Discovery:    a.cluster.DiscoveryReady,
		Schemas:      a.cluster.DefinitionsReady,
		Servers:      a.cluster.ServersReady,
		Health:       a.health.Stats,
		Collections:  a.collections,
		Eager:        a.warmup.Stats,
		Compression:  a.compressor.Stats,
		Reviews:      a.authorizer.Stats,
		Inflight:     requestLimits.Stats,
		Connections:  a.ports.connections(),
		Certificates: a.ports.certificates.Expiries,
		Metrics:      instruments.metrics,
	}
	instruments.metrics.MustRegister(source)
	return admin.Config{
		Source:  source,
		Metrics: telemetry.MetricsHandler(instruments.metrics, a.log),
		Flags:   flagsInForce(o.flags),
		Hosts:   ownHosts(upstream),
	}
}

// flagsInForce returns all flags as name=value, in the order of --help. No value is a secret: secrets are in files that
// flags name.
func flagsInForce(fs *pflag.FlagSet) []string {
	var flags []string
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" {
			flags = append(flags, f.Name+"="+f.Value.String())
		}
	})
	return flags
}

// ownHosts returns hosts that requests to the admin port may name, besides those that [admin.Config] always allows: the
// machine's and the API server's. A request through the API server's proxy (kubectl get --raw
// …/pods/NAME:8081/proxy/statusz) still names the API server.
func ownHosts(upstream *url.URL) []string {
	hosts := []string{upstream.Hostname()}
	if machine, err := os.Hostname(); err == nil {
		hosts = append(hosts, machine)
	}
	return hosts
}
