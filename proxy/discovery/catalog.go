package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
)

const (
	// discoveryRefresh is the age at which an answer of discovery is read
	// again while it is still used; after discoveryForget it is not used.
	discoveryRefresh = 5 * time.Minute
	discoveryForget  = 2 * discoveryRefresh
	// discoveryRetry is the least time between two reads of one group/version,
	// unless the first was refused: then it is discoveryRefusedRetry.
	discoveryRetry        = 5 * time.Second
	discoveryRefusedRetry = 30 * time.Second
	// discoveryTimeout bounds one read: an API server may be slow, and what it says is for the next five minutes.
	discoveryTimeout = 30 * time.Second
	// lookupWait is how long a request waits for a read.
	lookupWait = 10 * time.Second
	// maxGroupVersions bounds the answers of discovery that are remembered.
	maxGroupVersions = 1024
	// apiServicesGrace is how long the last known APIServices are believed after their stream last told
	// something. There is a bookmark every minute, so what is known outlives the stream by a minute and a half at
	// least, in which it can be opened again.
	apiServicesGrace = time.Minute + streamSilence
)

// coreV1 is the one version of the core group, which has a path of its own.
var coreV1 = schema.GroupVersion{Version: "v1"}

// Entry is what the catalog knows of a resource.
type Entry struct {
	Namespaced bool
	// Custom is true if a CustomResourceDefinition defines it.
	Custom bool
	// Aggregated is true if another server answers for it, and the operator vouches that it
	// shows the same to everyone.
	Aggregated bool
}

// Catalog knows what the upstream serves: which group/versions are the API
// server's own (from the APIServices, which it follows) and which resources
// they have that can be listed and watched (from discovery, read when first
// asked for).
//
// It fails closed. A group/version counts as the API server's own only if its
// APIService is known and names no service; kube-apiserver registers one for
// everything it serves itself, custom resources included (and except for the
// group of the APIServices, which is therefore forwarded). What has none is
// unknown, so whatever callers make up is answered without asking anyone and
// without remembering it. Where the APIServices may not be read, only the core
// group is believed to be local. (It too could be redirected by an APIService,
// but only by someone who may do everything already, since all Secrets and
// ServiceAccounts would go there.)
//
// It is safe for concurrent use. Lookups of what is known take a read lock and
// do no I/O.
type Catalog struct {
	// Vouched says of which resources an aggregated API server shows the same to everyone;
	// nil is none. It is set before Run, and must be quick.
	Vouched func(group, version, resource string) bool

	apiServices dynamic.NamespaceableResourceInterface
	discovery   discovery.ServerResourcesInterface
	moved       func(schema.GroupVersion)
	rewritten   func(schema.GroupResource)
	heard       heard // of the APIServices
	log         *slog.Logger
	flights     singleflight.Group
	refusedOnce sync.Once

	mu sync.RWMutex
	// servers has every APIService. It is nil until they were read for the
	// first time.
	servers map[schema.GroupVersion]server
	// refused: the APIServices may not be read.
	refused bool
	// known has what was read of local group/versions.
	known map[schema.GroupVersion]*discovered
	// hashes has the storage version hash of each resource that was read. It outlives what is
	// known, to hold the next answer against.
	hashes map[schema.GroupVersion]map[string]string
}

// server is who answers for a group/version.
type server struct {
	aggregated bool   // another one than the API server
	custom     bool   // by CustomResourceDefinitions
	service    string // the Service of another one
}

// discovered is what discovery said about a group/version. When it no longer
// holds, another takes its place in the map, so that a read that was under way
// then fills what nobody looks at.
type discovered struct {
	resources map[string]Entry
	read      time.Time     // when resources was asked for; zero: never
	rest      time.Time     // not to be read again before
	failure   reason.Reason // why the last read failed; empty: it did not
}

// NewCatalog returns a Catalog of the API server that cfg points to, with the
// proxy's own credentials. It knows nothing until Run runs. moved is called
// when another server, or none, answers for a group/version from now on;
// rewritten when discovery says that a resource is stored in another version
// than it said before. Both are called from the Catalog's own goroutines.
func NewCatalog(cfg *rest.Config, moved func(schema.GroupVersion), rewritten func(schema.GroupResource), log *slog.Logger) (*Catalog, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 0 // it would end the watch
	watcher, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot read APIServices: %w", err)
	}
	cfg.Timeout = discoveryTimeout
	cfg.QPS = -1 // discoveryRetry limits the reads; a shared bucket would make callers wait
	reader, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot read discovery: %w", err)
	}
	return &Catalog{
		apiServices: watcher.Resource(schema.GroupVersionResource{
			Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices",
		}),
		discovery: reader,
		moved:     moved,
		rewritten: rewritten,
		log:       log,
		known:     make(map[schema.GroupVersion]*discovered),
		hashes:    make(map[schema.GroupVersion]map[string]string),
	}, nil
}

// Run follows the APIServices until ctx ends.
func (c *Catalog) Run(ctx context.Context) {
	follower{
		name:         "apiservices",
		listWatch:    objectListWatch(c.apiServices),
		expectedType: &unstructured.Unstructured{},
		store:        apiServiceStore{c},
		heard:        &c.heard,
		ended:        c.streamEnded,
		// As that of the API servers' Leases: collections are back within seconds.
		soon: true,
		log:  c.log,
	}.follow(ctx)
}

// Ready says whether it is known which group/versions are aggregated, or that
// it cannot be known.
func (c *Catalog) Ready() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.servers != nil || c.refused
}

// Lookup returns what is known of a resource, with an empty reason if it is
// one of the API server's own, or vouched for, that can be listed and watched;
// else why it is to be forwarded:
//
//   - ReasonUnknownResource: not served, or without list or watch, or a subresource
//   - ReasonAggregated: another server answers for it, or may do so, and nobody vouches for that
//   - ReasonWarming: not known yet, or not any more
//   - ReasonNotPermitted: the proxy may not read discovery
//
// It waits for the upstream only if the group/version was not read yet, and
// not longer than ctx.
func (c *Catalog) Lookup(ctx context.Context, group, version, resource string) (Entry, reason.Reason) {
	gv := schema.GroupVersion{Group: group, Version: version}
	entry, reason, need := c.look(gv, resource)
	switch need {
	case readNow:
		ctx, cancel := context.WithTimeout(ctx, lookupWait)
		defer cancel()
		select {
		case <-ctx.Done():
		case <-c.startRead(gv):
			entry, reason, _ = c.look(gv, resource)
		}
	case readAhead:
		c.startRead(gv)
	case readNothing:
	}
	return entry, reason
}

// Known is Lookup for those who cannot wait: of what is not known it says no.
func (c *Catalog) Known(group, version, resource string) (Entry, bool) {
	entry, reason, _ := c.look(schema.GroupVersion{Group: group, Version: version}, resource)
	return entry, reason == ""
}

// Serves says whether the upstream is known to serve a resource that can be listed and watched.
func (c *Catalog) Serves(group, version, resource string) bool {
	_, known := c.Known(group, version, resource)
	return known
}

// Forget drops what discovery said about a group, to be read again when asked
// for: for those who see that a CustomResourceDefinition of it changed.
func (c *Catalog) Forget(group string) {
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
	now := time.Now()
	c.mu.RLock()
	defer c.mu.RUnlock()
	if reason := c.ownLocked(gv, resource); reason != "" {
		return Entry{}, reason, readNothing
	}
	g := c.known[gv]
	if g == nil {
		return Entry{}, reason.Warming, readNow
	}
	resting := now.Before(g.rest)
	age := snapshot.Age(g.read, now)
	entry, found := g.resources[resource]
	answers := c.servers[gv]
	entry.Custom, entry.Aggregated = answers.custom && !answers.aggregated, answers.aggregated
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

// ownLocked returns an empty reason if gv is the API server's own, or another server's
// whose resource is vouched for. Where it is not known which of both, nothing is vouched.
func (c *Catalog) ownLocked(gv schema.GroupVersion, resource string) reason.Reason {
	switch {
	case c.refused && gv == coreV1:
		return ""
	case c.refused && gv.Group == "":
		return reason.UnknownResource
	case c.refused:
		return reason.Aggregated
	case c.servers == nil, !c.heard.within(apiServicesGrace):
		return reason.Warming
	}
	answers, registered := c.servers[gv]
	switch {
	case answers.service != "" && c.Vouched != nil && c.Vouched(gv.Group, gv.Version, resource):
		return ""
	case answers.aggregated:
		return reason.Aggregated
	case registered, gv == coreV1:
		return ""
	default:
		return reason.UnknownResource
	}
}

// startRead reads gv from discovery, unless that is being done already. The
// channel yields when it is done; nobody has to wait for it.
func (c *Catalog) startRead(gv schema.GroupVersion) <-chan singleflight.Result {
	return c.flights.DoChan(gv.String(), func() (any, error) {
		c.read(gv)
		return nil, nil
	})
}

// read asks discovery about gv and remembers the answer, good or bad.
func (c *Catalog) read(gv schema.GroupVersion) {
	asked := time.Now()
	g := c.place(gv, asked)
	// It takes no context; the client's timeout bounds it.
	list, err := c.discovery.ServerResourcesForGroupVersion(gv.String())
	if err != nil && !apierrors.IsNotFound(err) {
		c.log.Warn("Discovery could not be read: lists of this group/version are forwarded unless it is known from before",
			"groupVersion", gv.String(), "error", err)
	}

	if err == nil {
		for _, resource := range c.rehash(gv, list) {
			c.log.Info("Discovery says that a resource is stored in another version than before", "resource", resource.String())
			c.rewritten(resource)
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	// If the place was dropped meanwhile, because this answer may be from before
	// a change, it is nobody's any more.
	g.rest = time.Now().Add(discoveryRetry)
	switch {
	case err == nil:
		g.resources, g.read, g.failure = servable(list), asked, ""
	case apierrors.IsNotFound(err):
		g.resources, g.failure = nil, reason.UnknownResource
	case apierrors.IsForbidden(err):
		g.failure = reason.NotPermitted
		g.rest = time.Now().Add(discoveryRefusedRetry)
	default:
		g.failure = reason.Warming
	}
}

// place returns where gv's answer goes, and makes room for it. What is known
// already answers while it is read again; otherwise the callers wait.
func (c *Catalog) place(gv schema.GroupVersion, now time.Time) *discovered {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.known[gv]; g != nil {
		if snapshot.Age(g.read, now) < discoveryForget {
			g.rest = now.Add(discoveryRetry)
		}
		return g
	}
	if len(c.known) >= maxGroupVersions {
		for other := range c.known { // any: it is read again when asked for
			delete(c.known, other)
			break
		}
	}
	g := &discovered{}
	c.known[gv] = g
	return g
}

// rehash remembers the storage version hashes in list, and returns the resources
// that had others before.
func (c *Catalog) rehash(gv schema.GroupVersion, list *metav1.APIResourceList) []schema.GroupResource {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.hashes[gv]
	if before == nil && len(c.hashes) >= maxGroupVersions {
		for other := range c.hashes { // any: only a comparison is lost
			delete(c.hashes, other)
			break
		}
	}
	hashes := make(map[string]string, len(list.APIResources))
	var changed []schema.GroupResource
	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		hashes[r.Name] = r.StorageVersionHash
		if was, found := before[r.Name]; found && was != r.StorageVersionHash {
			changed = append(changed, schema.GroupResource{Group: gv.Group, Resource: r.Name})
		}
	}
	c.hashes[gv] = hashes
	return changed
}

// servable returns the resources of list that can be served from memory.
func servable(list *metav1.APIResourceList) map[string]Entry {
	resources := make(map[string]Entry, len(list.APIResources))
	for _, r := range list.APIResources {
		subresource := strings.Contains(r.Name, "/")
		var lists, watches bool
		for _, verb := range r.Verbs {
			lists = lists || verb == "list"
			watches = watches || verb == "watch"
		}
		if !subresource && lists && watches {
			resources[r.Name] = Entry{Namespaced: r.Namespaced}
		}
	}
	return resources
}

// streamEnded notes that the stream has ended, and why.
func (c *Catalog) streamEnded(err error) {
	if !isRefused(err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = true
	c.refusedOnce.Do(func() {
		c.log.Warn("APIServices may not be read, so it is not known which API groups another server answers: only lists of the core group are answered from memory",
			"grant", "list and watch on apiservices.apiregistration.k8s.io", "error", err)
	})
}
