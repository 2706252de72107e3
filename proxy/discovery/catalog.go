package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// lookupWait is how long a request waits for a read.
const lookupWait = 10 * time.Second

// coreV1 is the one version of the core group, which has a path of its own.
var coreV1 = schema.GroupVersion{Version: "v1"}

// Entry is what the catalog knows of a resource.
type Entry struct {
	Namespaced bool
	// Custom is true if a CustomResourceDefinition defines it.
	Custom bool
}

// Catalog knows what the upstream serves: which group/versions are the API
// server's own (from the APIServices, which it follows) and which resources
// they have that can be listed and watched (from discovery, read when first
// asked for).
//
// It fails closed. A group/version counts as the API server's own only if its
// APIService is known and names no service; kube-apiserver registers one for
// everything it serves itself, custom resources included (and except for the
// group of the APIServices, which is therefore forwarded). A group/version without an APIService is
// unknown, so for made-up ones nobody is asked and nothing is remembered. If the APIServices may
// not be read, only the core group counts as local. (An APIService could redirect the core group,
// too, but whoever may do that may already do everything, since all Secrets and ServiceAccounts
// would go there.)
//
// It is safe for concurrent use. Lookups of what is known take a read lock and
// do no I/O.
type Catalog struct {
	apiServices reflector[server] // by name
	discovery   rest.Interface
	moved       func(of schema.GroupVersion, what string)
	// serversKnown says whether a change of the API servers would be noticed.
	serversKnown func() bool
	log          *slog.Logger
	background   sync.WaitGroup // what goLocked has started

	mu sync.RWMutex
	// life is run's context; nil while run does not run.
	life context.Context
	// reads has the reads of discovery that are in progress; each channel is closed at the end.
	reads map[schema.GroupVersion]chan struct{}
	// known has what was read of local group/versions.
	known map[schema.GroupVersion]*discovered
}

// newCatalog returns a Catalog of the API server that cfg points to, with the
// proxy's own credentials. It knows nothing until run runs. moved is called
// when a group/version has another server than before, or none, from the Catalog's own goroutines, and
// not after run.
func newCatalog(
	cfg *rest.Config, config Config, serversKnown func() bool, moved func(of schema.GroupVersion, what string),
) (*Catalog, error) {
	watcher, err := clientOf(cfg, 0, dynamic.NewForConfigAndClient)
	if err != nil {
		return nil, fmt.Errorf("cannot read APIServices: %w", err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // discoveryRetry limits the reads; a shared bucket would make callers wait
	reader, err := clientOf(cfg, discoveryTimeout, discovery.NewDiscoveryClientForConfigAndClient)
	if err != nil {
		return nil, fmt.Errorf("cannot read discovery: %w", err)
	}
	c := &Catalog{
		discovery:    reader.RESTClient(),
		moved:        moved,
		serversKnown: serversKnown,
		log:          config.Log,
		reads:        make(map[schema.GroupVersion]chan struct{}),
		known:        make(map[schema.GroupVersion]*discovered),
	}
	c.apiServices = reflector[server]{
		resource: "apiservices",
		source: listWatchOf(watcher.Resource(schema.GroupVersionResource{
			Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices",
		})),
		read:    readAPIService,
		changed: c.registered,
		refusal: "APIServices may not be read, so it is not known which API groups another server answers: only lists of the core " +
			"group are answered from memory",
		grant: "list and watch on apiservices.apiregistration.k8s.io",
		log:   config.Log,
	}
	return c, nil
}

// goLocked makes run wait for do, which gets its context. It does nothing, and returns false, while
// run does not run.
func (c *Catalog) goLocked(do func(context.Context)) bool {
	if c.life == nil {
		return false
	}
	life := c.life
	c.background.Go(func() { do(life) })
	return true
}

// Ready says whether it is known which group/versions are aggregated, or that
// it cannot be known.
func (c *Catalog) Ready() bool { return c.apiServices.ready() }

// Lookup returns what is known of a resource, with an empty reason if it is
// one of the API server's own that can be listed and watched;
// else why it is to be forwarded:
//
//   - [reason.UnknownResource]: not served, or without list or watch, or a subresource, or another
//     server answers for it, or may do so
//   - [reason.Warming]: not known yet, or not any more
//   - [reason.NotPermitted]: the proxy may not read discovery
//
// It waits for the upstream only if the group/version was not read yet, and
// not longer than ctx.
func (c *Catalog) Lookup(ctx context.Context, group, version, resource string) (Entry, reason.Reason) {
	gv := schema.GroupVersion{Group: group, Version: version}
	entry, why, need := c.look(gv, resource)
	switch need {
	case readNow:
		ctx, cancel := context.WithTimeout(ctx, lookupWait)
		defer cancel()
		select {
		case <-ctx.Done():
		case <-c.startRead(gv):
			entry, why, _ = c.look(gv, resource)
		}
	case readAhead:
		c.startRead(gv)
	}
	return entry, why
}

// Known is Lookup without waiting: if the resource is not known now, it returns false.
func (c *Catalog) Known(group, version, resource string) (Entry, bool) {
	entry, why, _ := c.look(schema.GroupVersion{Group: group, Version: version}, resource)
	return entry, why == ""
}

// Stands says whether a resource is known, and is as it was. It waits for nothing; if discovery's
// answer is too old, it is asked for again.
func (c *Catalog) Stands(group, version, resource string, was Entry) bool {
	gv := schema.GroupVersion{Group: group, Version: version}
	is, why, need := c.look(gv, resource)
	if need != readNothing {
		c.startRead(gv)
	}
	return why == "" && is == was
}

// Serves says whether the upstream is known to serve a resource that can be listed and watched.
func (c *Catalog) Serves(group, version, resource string) bool {
	_, known := c.Known(group, version, resource)
	return known
}

// forgetAfter is forget after a time, unless run has ended by then.
func (c *Catalog) forgetAfter(pause time.Duration, group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goLocked(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			c.forget(group)
		}
	})
}

// forget drops what discovery said about a group; it is read again when somebody asks.
func (c *Catalog) forget(group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for gv := range c.known {
		if gv.Group == group {
			delete(c.known, gv)
		}
	}
}

// lookupNeed says what a lookup needs from the upstream.
type lookupNeed int

const (
	readNothing lookupNeed = iota
	readAhead              // the answer holds, but is getting old
	readNow                // there is no answer without it
)

// look is Lookup without I/O.
func (c *Catalog) look(gv schema.GroupVersion, resource string) (Entry, reason.Reason, lookupNeed) {
	if !c.serversKnown() {
		return Entry{}, reason.Warming, readNothing
	}
	answers, why := c.route(gv)
	if why != "" {
		return Entry{}, why, readNothing
	}
	now := time.Now()
	c.mu.RLock()
	defer c.mu.RUnlock()
	g := c.known[gv]
	if g == nil {
		return Entry{}, reason.Warming, readNow
	}
	resting := now.Before(g.rest)
	age := clock.Age(g.read, now)
	entry, found := g.resources[resource]
	entry.Custom = answers.custom
	switch {
	case found && (age < discoveryRefresh || age < discoveryForget && resting):
		return entry, "", readNothing
	case found && age < discoveryForget:
		return entry, "", readAhead
	case resting && g.failure != "":
		return Entry{}, g.failure, readNothing
	case resting:
		return Entry{}, reason.UnknownResource, readNothing
	default:
		return Entry{}, reason.Warming, readNow
	}
}
