package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
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
	versions *storageVersions
	config   Config
}

// Config configures a Cluster.
type Config struct {
	// Invalidate is called for every change, from several goroutines. When it returns, no answer may
	// use what was learned before the change.
	Invalidate func(snapshot.Invalidation)
	// Settle is how long nothing is kept after the API servers of the upstream changed, or the
	// server of a group and version.
	Settle time.Duration
	// Quarantine is how long nothing is kept of a resource whose definition changed.
	Quarantine time.Duration
	Log        *slog.Logger
}

// New returns a Cluster that knows nothing until Run runs. It calls Invalidate at once, since until
// then nothing may be kept. cfg has listproxy's own credentials.
func New(cfg *rest.Config, config Config) (*Cluster, error) {
	c := &Cluster{config: config}
	var err error
	if c.Catalog, err = newCatalog(cfg, config, c.moved, c.rewritten); err != nil {
		return nil, err
	}
	if c.Schemas, err = newSchemas(cfg, c.redefined, config.Log); err != nil {
		return nil, err
	}
	if c.Servers, err = newServers(cfg, config, c.seen, c.replaced); err != nil {
		return nil, err
	}
	if c.versions, err = newStorageVersions(cfg, c.disagree, c.rewritten, config.Log); err != nil {
		return nil, err
	}
	config.Invalidate(snapshot.Invalidation{Ground: snapshot.Sight, Until: snapshot.Told()})
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
		return c.Schemas.fields(ctx, gvr)
	case entry.Aggregated:
		// Whose server may have the group and the names of a built-in resource.
		return nil, nil
	}
	return wire.BuiltinFields(gvr), nil
}

// The methods below are all changes that end what is known, and say what each invalidates for how
// long.

// moved: another server, or none, answers for a group and version from now on. Each API server
// learns of that by itself; until then it still passes requests, for objects and for discovery, to
// the former server.
func (c *Cluster) moved(gv schema.GroupVersion) {
	c.config.Invalidate(snapshot.Invalidation{
		Ground: snapshot.Catalog, Extent: snapshot.OfVersion(gv), Until: snapshot.After(c.config.Settle),
	})
	c.Catalog.forgetAfter(c.config.Settle, gv.Group)
}

// redefined: a CustomResourceDefinition appeared, changed or went.
func (c *Cluster) redefined(gr schema.GroupResource) {
	c.Catalog.forget(gr.Group)
	c.config.Invalidate(snapshot.Invalidation{
		Ground: snapshot.Definition, Extent: snapshot.OfResource(gr), Until: snapshot.After(c.config.Quarantine),
	})
}

// seen: from now on a change of the API servers would be noticed.
func (c *Cluster) seen() {
	c.config.Invalidate(snapshot.Invalidation{Ground: snapshot.Sight, Until: snapshot.Over()})
}

// replaced: other API servers than before stand behind the upstream.
func (c *Cluster) replaced() {
	c.config.Invalidate(snapshot.Invalidation{Ground: snapshot.Servers, Until: snapshot.After(c.config.Settle)})
}

// disagree: the API servers begin or cease to disagree in which version they write a resource.
func (c *Cluster) disagree(gr schema.GroupResource, disagree bool) {
	until := snapshot.Over()
	if disagree {
		until = snapshot.Told()
	}
	c.config.Invalidate(snapshot.Invalidation{Ground: snapshot.Servers, Extent: snapshot.OfResource(gr), Until: until})
}

// rewritten: the API servers write a resource in another version than before. It may be loaded
// again at once.
func (c *Cluster) rewritten(gr schema.GroupResource) {
	c.config.Invalidate(snapshot.Invalidation{Ground: snapshot.Servers, Extent: snapshot.OfResource(gr)})
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
