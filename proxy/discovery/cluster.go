package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Cluster knows what the upstream serves, and tells when that changes.
type Cluster struct {
	Catalog  *Catalog
	Schemas  *Schemas
	Servers  *Servers
	versions reflector[bool] // whether the API servers agree, by name of a StorageVersion
	config   Config
}

// Config configures a Cluster.
type Config struct {
	// Invalidate is called for every change, from several goroutines. When it returns, no answer may
	// use what was learned before the change.
	Invalidate func(snapshot.Invalidation)
	// Verify is called when other API servers than before stand behind the upstream.
	Verify func(what string)
	Log    *slog.Logger
}

// New returns a Cluster that knows nothing until Run runs. cfg has listproxy's own credentials.
func New(cfg *rest.Config, config Config) (*Cluster, error) {
	c := &Cluster{config: config}
	var err error
	if c.Servers, err = newServers(cfg, config, config.Verify); err != nil {
		return nil, err
	}
	if c.Catalog, err = newCatalog(cfg, config, c.Servers.Ready, c.moved); err != nil {
		return nil, err
	}
	if c.Schemas, err = newSchemas(cfg, c.redefined, config.Log); err != nil {
		return nil, err
	}
	objects, err := clientOf(cfg, 0, dynamic.NewForConfigAndClient)
	if err != nil {
		return nil, fmt.Errorf("cannot read StorageVersions: %w", err)
	}
	c.versions = reflector[bool]{
		resource: "storageversions", source: listWatchOf(objects.Resource(storageVersions)),
		read: readStorageVersion, changed: c.stored, log: config.Log,
	}
	return c, nil
}

// Run follows what the upstream serves until ctx ends.
func (c *Cluster) Run(ctx context.Context) {
	var parts sync.WaitGroup
	for _, run := range []func(context.Context){c.Catalog.run, c.Schemas.run, c.Servers.run, c.versions.run} {
		parts.Go(func() { run(ctx) })
	}
	parts.Wait()
}

// Fields returns the fields of a resource that a field selector may name, in addition to
// metadata.name and metadata.namespace. It returns an error if they cannot be known now.
func (c *Cluster) Fields(ctx context.Context, gvr schema.GroupVersionResource) ([]wire.Field, error) {
	entry, why := c.Catalog.Lookup(ctx, gvr.Group, gvr.Version, gvr.Resource)
	switch {
	case why != "":
		return nil, fmt.Errorf("the selectable fields of %s are not known: %s", gvr.GroupResource(), why)
	case entry.Custom:
		return c.Schemas.fields(gvr)
	}
	return wire.BuiltinFields(gvr), nil
}

// The methods below are all changes that end what is known, and say what each invalidates for how
// long.

// moved: another server, or none, answers for a group and version from now on. Each API server
// learns of that by itself; until then it still passes requests, for objects and for discovery, to
// the former server.
func (c *Cluster) moved(gv schema.GroupVersion, what string) {
	c.config.Log.Info("another server answers for a group and version: what is kept of it is dropped",
		"groupVersion", gv.String(), "change", what, "again", snapshot.Skew)
	c.config.Invalidate(snapshot.Invalidation{
		Cause: snapshot.Catalog, Scope: snapshot.OfVersion(gv), Until: snapshot.For(snapshot.Skew), What: what,
	})
	c.Catalog.forgetAfter(snapshot.Skew, gv.Group)
}

// redefined: a CustomResourceDefinition has appeared, changed or gone. Each API server learns of that
// by itself, and its watches from before go on with the old schema for a while.
func (c *Cluster) redefined(gr schema.GroupResource, what string, served bool) {
	c.Catalog.forget(gr.Group)
	if !served {
		return // so nothing was kept
	}
	c.config.Log.Info("a CustomResourceDefinition changed: what is kept of its resource is dropped",
		"definition", gr.String(), "change", what, "again", snapshot.Skew)
	c.config.Invalidate(snapshot.Invalidation{
		Cause: snapshot.Definition, Scope: snapshot.OfResource(gr), Until: snapshot.For(snapshot.Skew), What: what,
	})
}

// clientOf returns a client with listproxy's own credentials, which are for the upstream only: it
// follows no redirect. timeout bounds each request; a client that watches has none.
func clientOf[C any](cfg *rest.Config, timeout time.Duration, of func(*rest.Config, *http.Client) (C, error)) (C, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = timeout
	client, err := upstream.Client(cfg)
	if err != nil {
		var none C
		return none, err
	}
	return of(cfg, client)
}
