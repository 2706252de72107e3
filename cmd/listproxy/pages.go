package main

import (
	"log/slog"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/telemetry"
)

// pages makes the admin port's pages for people.
func (o *options) pages(a *app, observing *observing, state proxy.State, log *slog.Logger) (proxy.AdminPages, error) {
	source := &proxy.StatusSource{
		State:           state,
		Version:         version(),
		Upstream:        a.upstream.Scheme + "://" + a.upstream.Host,
		Started:         time.Now(),
		Ready:           a.ready,
		Metrics:         observing.metrics.Gatherer(),
		Observer:        observing.Observer,
		Window:          o.window,
		Silence:         o.silence,
		CompressedBound: o.compressedBound,
		Flags:           func() []telemetry.FlagStatus { return flagsInForce(o.flags) },
	}
	status, err := telemetry.StatusHandler(source.Read, log)
	return proxy.AdminPages{Status: status, Flags: source.Flags, Profiling: o.profiling, Hosts: o.admin.names(a.upstream)}, err
}

// window is how far back the history of a resource is to reach.
func (o *options) window(gvr schema.GroupVersionResource) time.Duration {
	if window := o.policy.For(gvr.Group, gvr.Version, gvr.Resource).HistoryWindow; window > 0 {
		return window
	}
	return o.history
}

// flagsInForce returns all flags by name. None of them has a secret for a value: they name files.
func flagsInForce(fs *pflag.FlagSet) []telemetry.FlagStatus {
	var flags []telemetry.FlagStatus
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" {
			flags = append(flags, telemetry.FlagStatus{Name: f.Name, Value: f.Value.String(), Set: f.Changed})
		}
	})
	return flags
}
