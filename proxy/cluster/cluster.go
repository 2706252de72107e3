package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Cluster knows what the upstream serves, and reports changes. It follows these sources:
//
//	APIServices                 which server answers for a group and version
//	CustomResourceDefinitions   the custom resources
//	discovery                   the built-in resources
//	StorageVersions             whether all API servers write a resource in the same version
//	Leases, /version            the API servers and their versions
//	RBAC objects                the rights of callers; only revocations are reported
//
// Discovery and /version are read again and again. For each other source, a reflector follows the objects, and keeps a value of
// each object.
//
// Cluster is safe for concurrent use. Lookups take read locks and do no I/O.
type Cluster struct {
	routes          reflector[route]        // from APIServices
	definitions     reflector[definition]   // from CustomResourceDefinitions
	storageVersions reflector[disagreement] // from StorageVersions
	leases          reflector[string]       // the holders of the API servers' Leases
	api             *api
	config          Config

	discoveryDue chan struct{}                     // holds an element while discovery must be read (see wakeDiscovery)
	builtins     atomic.Pointer[builtinsByVersion] // nil until discovery was read; only followDiscovery writes it
	// discoveryFailingSince is the time of the first failed read of discovery since the last good read or the last warning. It
	// is zero if no read has failed since.
	discoveryFailingSince time.Time

	// versionAPI reads /version. It uses a new connection each time, since a balancer chooses the server by connection.
	versionAPI *api
	// newHolderAtStart reports whether the API servers give their Leases a new holder whenever they start. This depends on the
	// version that /version last answered (see startsWithNewHolder).
	newHolderAtStart atomic.Bool

	holdersMu   sync.Mutex
	holderSince map[string]time.Time // when each holder of a Lease was first seen

	leaseReadMu   sync.Mutex
	lastLeaseRead leaseRead // the last read of readLeases
}

// Config configures a Cluster.
type Config struct {
	// Invalidate is called when the resources in scope have changed: their definition, or the server that answers for them. It
	// is called from several goroutines. When it returns, no answer may use what was learned before the change. See
	// [snapshot.Collections.Invalidate].
	Invalidate func(scope snapshot.Scope, cause reason.Reason)
	// Verify is called when the API servers may have begun to write the same objects of the resources in scope in other bytes,
	// as after an upgrade.
	Verify func(scope snapshot.Scope)
	// Revoked is called when rights in a namespace may have been revoked by a change of a Role or RoleBinding, or rights in all
	// namespaces ("") by a change of a ClusterRole or ClusterRoleBinding. It is called from several goroutines.
	Revoked func(namespace string)
	// AsOf returns the time at which ages are measured. Usually this is now. In an outage, and for up to five seconds after it,
	// it is the time at which an API server last sent something before the outage, so that nothing grows older. A nil AsOf
	// always stands for now.
	AsOf func(now time.Time) time.Time
	Log  *slog.Logger
}

// Entry describes a resource.
type Entry struct {
	Namespaced bool
	// Custom reports whether a CustomResourceDefinition defines the resource.
	Custom bool
}

// New returns a Cluster, which is empty until Run runs. account has listproxy's own credentials.
func New(account *rest.Config, config Config) (*Cluster, error) {
	c := &Cluster{config: config, discoveryDue: make(chan struct{}, 1), holderSince: map[string]time.Time{}}
	var err, versionErr error
	c.api, err = newAPI(account)
	c.versionAPI, versionErr = newAPI(upstream.WithoutConnectionReuse(account))
	if err = errors.Join(err, versionErr); err != nil {
		return nil, fmt.Errorf("cannot follow what the API server serves: %w", err)
	}
	c.routes = reflector[route]{
		resource: "apiservices",
		from:     c.api,
		path:     "/apis/apiregistration.k8s.io/v1/apiservices",
		read:     readAPIService,
		onChange: c.routeChanged,
		refusedWarning: "APIServices may not be read, so it is not known which API groups another server answers: " +
			"only lists of the core group are answered from memory",
		needs: "list and watch on apiservices.apiregistration.k8s.io",
		asOf:  config.AsOf,
		log:   config.Log,
	}
	c.definitions = reflector[definition]{
		resource:       "customresourcedefinitions",
		from:           c.api,
		path:           "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		read:           readDefinition,
		onChange:       c.definitionChanged,
		refusedWarning: "CustomResourceDefinitions may not be watched: custom resources are not answered from memory",
		needs:          "list and watch on customresourcedefinitions.apiextensions.k8s.io",
		asOf:           config.AsOf,
		log:            config.Log,
	}
	c.storageVersions = reflector[disagreement]{
		resource: "storageversions",
		from:     c.api,
		path:     storageVersionsPath,
		read:     readStorageVersion,
		onChange: c.storageVersionChanged,
		log:      config.Log,
	}
	c.leases = reflector[string]{
		resource: "the API servers' leases",
		from:     c.api,
		// One for each API server (k8s.io/kubernetes/pkg/controlplane/apiserver, server.go).
		path:           "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
		labels:         "apiserver.kubernetes.io/identity=kube-apiserver",
		read:           readHolder,
		onChange:       c.leaseChanged,
		refusedWarning: "the API servers' Leases may not be read: only /version tells that API servers changed",
		needs:          "list and watch on leases.coordination.k8s.io in kube-system",
		log:            config.Log,
	}
	return c, nil
}

// Run follows what the upstream serves until ctx ends.
func (c *Cluster) Run(ctx context.Context) {
	var parts sync.WaitGroup
	for _, run := range []func(context.Context){
		c.routes.run, c.definitions.run, c.storageVersions.run, c.leases.run, c.followVersion, c.followDiscovery, c.followRBAC,
	} {
		parts.Go(func() { run(ctx) })
	}
	parts.Wait()
}

// DiscoveryReady reports whether discovery was read.
func (c *Cluster) DiscoveryReady() bool { return c.builtins.Load() != nil }

// DefinitionsReady reports whether the CustomResourceDefinitions were listed, or the API server refuses them to listproxy.
func (c *Cluster) DefinitionsReady() bool { return c.definitions.ready() }

// ServersReady reports whether the API servers' Leases were listed, or the API server refuses them to listproxy.
func (c *Cluster) ServersReady() bool { return c.leases.ready() }

// Lookup returns the entry of a resource if kube-apiserver itself serves it, if it can be listed and watched, and if changes of
// its definition and route are noticed (of the core group, not those of the route: see routeOf). For any other resource it
// returns the reason to forward:
//
//	[reason.Warming]           the resource is not known yet, or not any more
//	[reason.UnknownResource]   the resource is not served, cannot be listed and watched, is a subresource, or may be served by
//	                           another server
//	[reason.Upstream]          what is known of the resource is contradictory or out of date
//	[reason.NotPermitted]      listproxy may not read discovery
func (c *Cluster) Lookup(gvr schema.GroupVersionResource) (Entry, reason.Reason) {
	servedBy, why := c.routeOf(gvr.GroupVersion())
	switch {
	case why != reason.None:
		return Entry{}, why
	case !c.ServersReady(), !c.DefinitionsReady():
		return Entry{}, reason.Warming
	}
	gr := gvr.GroupResource()
	definition := c.definitions.get(gr.String())
	isCustom := servedBy == routeCustom
	switch { // the first case that holds decides
	case isCustom && !definition.exists && c.definitions.isUnreadable(): // listproxy may not read the definition
		return Entry{}, reason.Upstream
	case isCustom && !definition.exists:
		return Entry{}, reason.UnknownResource
	case isCustom && !definition.isCurrent: // the definition may have changed
		return Entry{}, reason.Upstream
	case !isCustom && definition.exists: // the event about the APIService or the definition is still to come
		return Entry{}, reason.Upstream
	case c.storageVersionsDiffer(gr): // the API servers may write different bytes
		return Entry{}, reason.Upstream
	case isCustom:
		return definition.value.entry(gvr.Version)
	}
	return c.builtin(gvr)
}

// IsCurrent reports whether Lookup still returns an entry for a resource.
func (c *Cluster) IsCurrent(gvr schema.GroupVersionResource, entry Entry) bool {
	current, why := c.Lookup(gvr)
	return why == reason.None && current == entry
}

// Serves reports whether Lookup returns an entry for a resource.
func (c *Cluster) Serves(group, version, resource string) bool {
	_, why := c.Lookup(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
	return why == reason.None
}

// Fields returns the fields of a resource that a field selector may name, besides metadata.name and metadata.namespace. It
// returns an error if Lookup returns no entry.
func (c *Cluster) Fields(_ context.Context, gvr schema.GroupVersionResource) ([]wire.Field, error) {
	entry, why := c.Lookup(gvr)
	switch {
	case why != reason.None:
		return nil, fmt.Errorf("the selectable fields of %s are not known: %s", gvr.GroupResource(), why)
	case entry.Custom:
		return c.definitions.get(gvr.GroupResource().String()).value.fieldsByVersion[gvr.Version], nil
	}
	return wire.BuiltinFields(gvr), nil
}
