package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Cluster knows what the upstream serves, and tells when that changes: who answers for each group and
// version (by APIServices), custom resources (by their definitions), those that are built in (by
// discovery), and which API servers there are.
//
// It is safe for concurrent use. Lookups take read locks and do no I/O.
type Cluster struct {
	routes      reflector[route]      // by name of an APIService
	definitions reflector[definition] // by name
	versions    reflector[bool]       // whether the API servers agree, by name of a StorageVersion
	servers     *servers
	api         *api
	config      Config
	changed     chan struct{} // has a value if discovery is to be read

	mu       sync.RWMutex
	builtins map[schema.GroupVersion]builtins // nil: not read yet
}

// Config configures a Cluster.
type Config struct {
	// Invalidate is called for every change, from several goroutines. When it returns, no answer may
	// use what was learned before the change.
	Invalidate func(snapshot.Invalidation)
	// Verify is called when other API servers than before stand behind the upstream.
	Verify func(what string)
	// AsOf returns the time at which to judge how old something is that the API server has said; nil: now.
	AsOf func(time.Time) time.Time
	Log  *slog.Logger
}

// Entry is what is known of a resource.
type Entry struct {
	Namespaced bool
	// Custom is true if a CustomResourceDefinition defines it.
	Custom bool
}

// New returns a Cluster that knows nothing until Run runs. cfg has listproxy's own credentials.
func New(cfg *rest.Config, config Config) (*Cluster, error) {
	c := &Cluster{config: config, changed: make(chan struct{}, 1)}
	var err error
	if c.api, err = newAPI(cfg); err != nil {
		return nil, fmt.Errorf("cannot follow what the API server serves: %w", err)
	}
	c.servers, err = newServers(cfg, c.api, config.Log, func(what string) {
		c.builtinsChanged()
		config.Verify(what)
	})
	if err != nil {
		return nil, err
	}
	c.routes = reflector[route]{
		resource: "apiservices",
		from:     c.api, path: "/apis/apiregistration.k8s.io/v1/apiservices",
		read:    readAPIService,
		changed: c.rerouted,
		asOf:    config.AsOf,
		refusal: "APIServices may not be read, so it is not known which API groups another server answers: only lists of the core " +
			"group are answered from memory",
		grant: "list and watch on apiservices.apiregistration.k8s.io",
		log:   config.Log,
	}
	c.definitions = reflector[definition]{
		resource: "customresourcedefinitions",
		from:     c.api, path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		read:    readDefinition,
		changed: c.redefined,
		asOf:    config.AsOf,
		refusal: "CustomResourceDefinitions may not be watched: custom resources are not answered from memory",
		grant:   "list and watch on customresourcedefinitions.apiextensions.k8s.io",
		log:     config.Log,
	}
	c.versions = reflector[bool]{
		resource: "storageversions", from: c.api, path: storageVersions,
		read: readStorageVersion, changed: c.stored, log: config.Log,
	}
	return c, nil
}

// SameTimeline implements [snapshot.Config.SameTimeline].
func (c *Cluster) SameTimeline(ctx context.Context, revision uint64, heard time.Time) (same, mayBe bool) {
	return c.servers.sameTimeline(ctx, revision, heard)
}

// Run follows what the upstream serves until ctx ends.
func (c *Cluster) Run(ctx context.Context) {
	var parts sync.WaitGroup
	for _, run := range []func(context.Context){
		c.routes.run, c.definitions.run, c.versions.run, c.servers.run, c.followDiscovery,
	} {
		parts.Go(func() { run(ctx) })
	}
	parts.Wait()
}

// DiscoveryReady reports whether it is known what is built in and which group/versions are aggregated, or
// that it cannot be known.
func (c *Cluster) DiscoveryReady() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.builtins != nil
}

// DefinitionsReady reports whether the definitions are known, or cannot be known: before that a change
// could go unnoticed.
func (c *Cluster) DefinitionsReady() bool { return c.definitions.ready() }

// ServersReady reports whether a change of the API servers would be noticed from now on, or cannot be.
func (c *Cluster) ServersReady() bool { return c.servers.leases.ready() }

// Lookup returns what is known of a resource, with an empty reason if it is one of the API server's own
// that can be listed and watched, and a change of it would be heard of; else why it is to be forwarded:
//
//   - [reason.UnknownResource]: not served, or without list or watch, or a subresource, or another
//     server answers for it, or may do so
//   - [reason.Upstream]: definitions forbid it. A change of them would not be noticed; or they and the
//     APIService disagree whether it is a custom resource, which is written differently (the APIService
//     was made again, or before the definition)
//   - [reason.Warming]: not known yet, or not any more
//   - [reason.NotPermitted]: listproxy may not read discovery
func (c *Cluster) Lookup(gvr schema.GroupVersionResource) (Entry, reason.Reason) {
	route, why := c.routeOf(gvr.GroupVersion())
	if why != reason.None {
		return Entry{}, why
	}
	d, defined, current := c.definitions.get(gvr.GroupResource().String())
	switch {
	case !c.ServersReady(), !c.DefinitionsReady():
		return Entry{}, reason.Warming
	case route.custom && !defined && !c.definitions.isRefused():
		return Entry{}, reason.UnknownResource
	case route.custom != defined, route.custom && !current:
		return Entry{}, reason.Upstream
	case route.custom:
		return d.entry(gvr.Version)
	}
	return c.builtin(gvr)
}

// Stands reports whether a resource is known, and is what it was before.
func (c *Cluster) Stands(gvr schema.GroupVersionResource, was Entry) bool {
	is, why := c.Lookup(gvr)
	return why == reason.None && is == was
}

// Serves reports whether the upstream is known to serve a resource that can be listed and watched.
func (c *Cluster) Serves(group, version, resource string) bool {
	_, why := c.Lookup(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
	return why == reason.None
}

// Fields returns the fields of a resource that a field selector may name, in addition to
// metadata.name and metadata.namespace. It returns an error if they cannot be known now.
func (c *Cluster) Fields(_ context.Context, gvr schema.GroupVersionResource) ([]wire.Field, error) {
	entry, why := c.Lookup(gvr)
	switch {
	case why != reason.None:
		return nil, fmt.Errorf("the selectable fields of %s are not known: %s", gvr.GroupResource(), why)
	case entry.Custom:
		d, _, _ := c.definitions.get(gvr.GroupResource().String())
		return d.fields[gvr.Version], nil
	}
	return wire.BuiltinFields(gvr), nil
}
