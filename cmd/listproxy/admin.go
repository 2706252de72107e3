package main

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/listproxy/listproxy/cmd/listproxy/policyfile"
	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// pages makes the admin port's pages for people.
func (o *options) pages(a *app, observing *observing, state admin.State) (admin.Pages, error) {
	address := a.transports.URL()
	a.status = &admin.StatusSource{
		State:           state,
		Version:         version(),
		Upstream:        address.Scheme + "://" + address.Host,
		Started:         time.Now(),
		Ready:           a.ready.Checks,
		Metrics:         observing.metrics.Gatherer(),
		Observer:        observing.Observer,
		Window:          o.window,
		CompressedBound: o.cache.compressedBound,
		SelfCheck:       o.cache.selfCheck,
		Mismatched:      a.collections.Mismatched,
		Flags:           func() []statusz.Flag { return flagsInForce(o.flags) },
		Policy:          o.policyInForce(),
		Endpoints:       a.endpoints.Stats,
		Eager:           eagerInForce(o.cache.eagerly),
		Traces:          statusz.Traces{Enabled: observing.traces.Enabled(), Sampler: observing.traces.Sampler()},
	}
	status, err := statusz.Handler(a.status.Read, a.log)
	return admin.Pages{Status: status, Flags: a.status.Flags, Profiling: o.admin.profiling, Hosts: o.admin.names(address)}, err
}

// window is how far back the history of a resource is to reach.
func (o *options) window(gvr schema.GroupVersionResource) time.Duration {
	if window := o.cache.policy.For(gvr.Group, gvr.Version, gvr.Resource).HistoryWindow; window > 0 {
		return window
	}
	return o.cache.history
}

// policyInForce is the policy, with what it leaves to flags.
func (o *options) policyInForce() statusz.Policy {
	file := o.cache.policy.File()
	status := statusz.Policy{File: file.Name, SHA256: file.SHA256}
	for _, named := range policyfile.InForce(o.cache.policy) {
		status.Rules = append(status.Rules, o.ruleInForce(named))
	}
	return status
}

func (o *options) ruleInForce(r policyfile.NamedRule) statusz.Rule {
	status := statusz.Rule{Resource: r.Name, Cache: string(r.Cache), Source: r.Source}
	if r.Cache == policy.CacheNever {
		return status
	}
	for _, representation := range r.Representations {
		status.Representations = append(status.Representations, string(representation))
	}
	status.History = cmp.Or(r.HistoryWindow, o.cache.history).Seconds()
	status.MaxBytes = r.MaxBytes
	status.LimitAtZero = string(r.LimitAtZero)
	status.SameForEveryone = r.SameForEveryone
	status.ConsistentLists = string(r.ConsistentLists)
	status.Watches = r.AnswersWatches()
	status.NewestAsAny = len(r.NewestAsAny)
	switch {
	case r.Cache == policy.CacheEager: // it stays, whoever asks
	case r.IdleTimeout != nil:
		status.Idle = r.IdleTimeout.Seconds()
	default:
		status.Idle = o.cache.idle.Seconds()
	}
	return status
}

// eagerInForce are the collections that are loaded before anybody asks.
func eagerInForce(eager []policy.EagerCollection) []statusz.Eager {
	status := []statusz.Eager{}
	for _, e := range eager {
		status = append(status, statusz.Eager{
			Resource: schema.GroupResource{Group: e.Group, Resource: e.Resource}.String(), Version: e.Version,
			Representation: string(e.Representation),
		})
	}
	return status
}

// flagsInForce returns all flags, in the order of help. None of them has a secret for a value: they name files.
func flagsInForce(fs *pflag.FlagSet) []statusz.Flag {
	var flags []statusz.Flag
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" {
			flags = append(flags, statusz.Flag{Name: f.Name, Value: f.Value.String(), Set: f.Changed})
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
