package main

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	fs.StringVar(&o.bindAddress, "admin-bind-address", "127.0.0.1:8081",
		"`address` of health checks (/livez, /readyz), metrics (/metrics), the status page (/statusz) and flags (/flagz), "+
			"plain HTTP")
}

// Validate implements optionGroup.
func (o *adminOptions) Validate() error {
	if _, _, err := net.SplitHostPort(o.bindAddress); err != nil { // for "", net.Listen would listen on all interfaces
		return fmt.Errorf("--admin-bind-address %q: %w: give address:port", o.bindAddress, err)
	}
	return nil
}

// newAdminPort returns the handler of the admin port. It registers the port's Source as a collector of metrics.
func (o *options) newAdminPort(a *app, requestLimits *limits.Limits, metrics *prometheus.Registry) http.Handler {
	upstream := a.api.transports.URL()
	source := &admin.Source{
		Version:          version(),
		Address:          upstream.Scheme + "://" + upstream.Host,
		Started:          time.Now(),
		Draining:         a.draining.Load,
		DiscoveryReady:   a.cache.cluster.DiscoveryReady,
		DefinitionsReady: a.cache.cluster.DefinitionsReady,
		ServersReady:     a.cache.cluster.ServersReady,
		Health:           a.api.health.Diagnosis,
		Collections:      a.cache.collections,
		Eager:            a.cache.warmup.Stats,
		Compression:      a.cache.compressor.Stats,
		ReviewLookups:    a.rights.authorizer.Lookups,
		Inflight:         requestLimits.Stats,
		Connections: map[string]*limits.Connections{
			"clients": a.ports.clientConnections,
			"admin":   a.ports.adminConnections,
		},
		Certificates: a.ports.certificates.Expiries,
		Metrics:      metrics,
	}
	metrics.MustRegister(source)
	return admin.New(source, telemetry.MetricsHandler(metrics, a.log), o.flagsInForce(), allowedHosts(upstream))
}

// flagsInForce returns all flags as name=value, in the order of --help. No value is a secret: secrets are in files that flags
// name.
func (o *options) flagsInForce() []string {
	var flags []string
	for _, title := range o.sections.Order {
		o.sections.FlagSets[title].VisitAll(func(f *pflag.Flag) {
			flags = append(flags, f.Name+"="+f.Value.String())
		})
	}
	return flags
}

// allowedHosts returns names that the admin port accepts in the header Host: this machine's, and the API server's, which
// requests through the API server's own proxy have (kubectl get --raw …/pods/NAME:8081/proxy/statusz).
func allowedHosts(upstream *url.URL) []string {
	hosts := []string{upstream.Hostname()}
	if machine, err := os.Hostname(); err == nil {
		hosts = append(hosts, machine)
	}
	return hosts
}
