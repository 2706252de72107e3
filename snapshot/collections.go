package snapshot

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Config says how collections are fed and bounded.
type Config struct {
	// Client and Base reach the upstream with the proxy's own credentials.
	Client *http.Client
	Base   *url.URL
	Limits Limits
	// Bytes bounds what all collections store together; 0 is no bound.
	Bytes int64
	// Idle is how long a collection is kept that nobody asks for; 0 is for ever.
	Idle time.Duration
	// Jitter spreads the start of eager collections, so that replicas that start together do
	// not load together.
	Jitter time.Duration
	// Quarantine is how long nothing is kept of a resource whose definition changed.
	Quarantine time.Duration
	Log        *slog.Logger
}

const (
	// maxCollections bounds how many collections callers can cause.
	maxCollections = 1000
	// maxLoads is how many collections load their first state at the same time.
	maxLoads = 4
	// rested is how long a collection must not have been asked for to be given up for memory.
	rested = time.Minute
	// tidyEvery is how often history is cut.
	tidyEvery = time.Second
)

// Collections are all that is held of one upstream. Safe for concurrent use.
type Collections struct {
	config Config
	budget *budget
	loads  chan struct{}
	ctx    context.Context
	stop   context.CancelFunc
	feeds  sync.WaitGroup

	mu  sync.RWMutex
	all map[Resource]*running
	// kept are the resources that are eager, also after a collection of theirs was dropped.
	kept map[Resource]struct{}
	// quarantine says until when nothing is kept of a resource.
	quarantine map[schema.GroupResource]time.Time
}

// running is a collection and the feed that keeps it.
type running struct {
	*Collection
	stop context.CancelFunc
}

// NewCollections returns an empty set. Close ends it.
func NewCollections(config Config) *Collections {
	ctx, stop := context.WithCancel(context.Background())
	c := &Collections{
		config: config,
		budget: &budget{limit: config.Bytes},
		loads:  make(chan struct{}, maxLoads),
		ctx:    ctx,
		stop:   stop,
		all:    map[Resource]*running{},

		kept:       map[Resource]struct{}{},
		quarantine: map[schema.GroupResource]time.Time{},
	}
	c.feeds.Go(c.tidy)
	return c
}

// Close stops all feeds and forgets what they knew.
func (c *Collections) Close() {
	c.stop()
	c.feeds.Wait()
}

// Use returns the collection of a resource, and starts it if it is not there yet.
func (c *Collections) Use(r Resource) (*Collection, Absence) {
	c.mu.RLock()
	found := c.all[r]
	c.mu.RUnlock()
	if found != nil {
		return found.Collection, Known
	}
	return c.start(r, 0)
}

// Keep starts a collection that stays, whether it is asked for or not.
func (c *Collections) Keep(r Resource) (*Collection, Absence) {
	delay := time.Duration(0)
	if c.config.Jitter > 0 {
		delay = rand.N(c.config.Jitter)
	}
	c.mu.Lock()
	c.kept[r] = struct{}{}
	c.mu.Unlock()
	return c.start(r, delay)
}

func (c *Collections) start(r Resource, delay time.Duration) (*Collection, Absence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.all[r]; found != nil {
		return found.Collection, Known
	}
	if c.ctx.Err() != nil {
		return nil, Stopped
	}
	if _, quarantined := c.quarantine[r.GroupResource()]; quarantined {
		return nil, Schema
	}
	if len(c.all) >= maxCollections || c.budget.crowded() {
		return nil, Memory
	}
	ctx, stop := context.WithCancel(c.ctx)
	collection := newCollection(r, c.config.Limits, c.budget)
	entry := &running{Collection: collection, stop: stop}
	c.all[r] = entry
	f := &feed{
		source:     source{client: c.config.Client, base: c.config.Base, resource: r},
		collection: collection,
		loads:      c.loads,
		log:        c.config.Log.With("collection", r.String()),
	}
	c.feeds.Go(func() { f.run(ctx, delay) })
	return collection, Known
}

// SchemaChanged drops all that is held of a resource, at once, and keeps nothing of it for a
// while: after its definition changed the upstream writes its objects in other bytes, not all
// API servers see that at the same time, and watches from before go on with the old ones.
func (c *Collections) SchemaChanged(changed schema.GroupResource) {
	c.mu.Lock()
	c.quarantine[changed] = time.Now().Add(c.config.Quarantine)
	c.mu.Unlock()
	c.endAll(Schema, func(r Resource) bool { return r.GroupResource() == changed })
}

// Moved drops all that is held of a group/version, because another server answers for it from
// now on: neither its objects nor its revisions have to do with those before.
func (c *Collections) Moved(gv schema.GroupVersion) {
	c.endAll(Stopped, func(r Resource) bool { return r.GroupVersion() == gv })
}

func (c *Collections) endAll(why Absence, which func(Resource) bool) {
	for _, r := range c.list() {
		if which(r.resource) {
			c.end(r, why)
		}
	}
}

// endQuarantine lets resources in again whose time is over.
func (c *Collections) endQuarantine(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.quarantine, func(_ schema.GroupResource, until time.Time) bool { return !now.Before(until) })
}

// tidy cuts history, ends idle collections, and makes room at the byte bound.
func (c *Collections) tidy() {
	ticker := time.NewTicker(tidyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case now := <-ticker.C:
			for _, r := range c.list() {
				r.trim(now)
			}
			c.endQuarantine(now)
			c.endIdle(now)
			c.makeRoom(now)
		}
	}
}

func (c *Collections) list() []*running {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*running, 0, len(c.all))
	for _, r := range c.all {
		all = append(all, r)
	}
	return all
}

func (c *Collections) isKept(r *running) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, kept := c.kept[r.resource]
	return kept
}

func (c *Collections) endIdle(now time.Time) {
	for _, r := range c.list() {
		if c.config.Idle > 0 && !c.isKept(r) && r.idle(now) > c.config.Idle {
			c.end(r, Stopped)
		}
	}
}

// makeRoom keeps a tenth of the bound free: first every history is shortened, then the
// collection goes that was not asked for the longest. What still does not fit is refused where
// it comes in.
func (c *Collections) makeRoom(now time.Time) {
	if !c.budget.crowded() {
		return
	}
	all := c.list()
	for _, r := range all {
		r.shorten()
	}
	if !c.budget.crowded() {
		return
	}
	all = slices.DeleteFunc(all, func(r *running) bool { return c.isKept(r) || r.idle(now) < rested })
	if len(all) > 0 {
		c.end(slices.MaxFunc(all, func(a, b *running) int { return cmp.Compare(a.idle(now), b.idle(now)) }), Memory)
	}
}

// end stops a collection's feed and forgets what it knew.
func (c *Collections) end(r *running, why Absence) {
	c.mu.Lock()
	if c.all[r.resource] == r {
		delete(c.all, r.resource)
	}
	c.mu.Unlock()
	r.retire(why)
	r.stop()
	c.config.Log.Info("collection ended", "collection", r.resource.String(), "reason", why, "idle", r.idle(time.Now()).Round(time.Second))
}
