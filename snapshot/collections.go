package snapshot

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Config says how collections are fed and bounded.
type Config struct {
	// Client sends requests to the upstream at the URL Base, with listproxy's own credentials.
	Client *http.Client
	Base   *url.URL
	// Elsewhere is like Client, but opens a new connection for each request. If the upstream is behind a load balancer, the new
	// connection may lead to another API server.
	Elsewhere *http.Client
	Limits    Limits
	// Outage returns the upstream's current outage, or the zero value.
	Outage func() clock.Outage
	// SameTimeline is called after a stream has ended or broken. The stream had reached the revision, and last sent something,
	// or was opened, at heardAt. same reports whether there is a proof that etcd has lost nothing up to the revision since. If
	// same is false, proofMayCome reports whether a call some seconds later may find a proof. See feed.proveTimeline.
	SameTimeline func(ctx context.Context, revision uint64, heardAt time.Time) (same, proofMayCome bool)
	// MaxBytes bounds the bytes that all collections store together; 0 means no bound.
	MaxBytes int64
	// IdleTimeout is the time after the last request for a collection until it is dropped; 0 means never.
	IdleTimeout time.Duration
	// Settings returns the settings of one resource.
	Settings func(schema.GroupVersionResource) Settings
	// SelectableFields returns the fields of a resource that a field selector may name, in addition to metadata.name and
	// metadata.namespace. Fields that the upstream does not accept are not used. A feed asks for them before each load.
	SelectableFields func(context.Context, schema.GroupVersionResource) ([]wire.Field, error)
	// SelfCheckInterval is the interval at which each collection is compared with the upstream; 0 means never.
	SelfCheckInterval time.Duration
	// ContinueToken returns the upstream's continue token for a page that begins with the key start. Comparisons need it.
	ContinueToken func(revision uint64, start string) string
	Log           *slog.Logger
}

// Settings are the settings for the collections of one resource.
type Settings struct {
	// History is the time for which states are kept; 0 means Limits.History.
	History time.Duration
	// Watches reports whether clients may watch the collections.
	Watches bool
}

const (
	// startsPerSecond and startsAtOnce, a burst, bound how fast clients' requests can start collections. Even a client with
	// rights in only one namespace can ask for every resource in every representation, and each start loads all namespaces.
	startsPerSecond = 5
	startsAtOnce    = 32
	// maxCollections bounds the number of collections, including those of [Collections.Keep].
	maxCollections = 1000
	// maxLoads is the number of collections that load a state at the same time.
	maxLoads = 4
)

// Collections are all collections of one upstream. It is safe for concurrent use.
type Collections struct {
	config Config
	shared shared
	// startLimiter bounds how fast collections are started.
	startLimiter *rate.Limiter

	// ctx is the context of the loops: the feeds, and the loops that NewCollections starts. stop cancels it.
	ctx   context.Context
	stop  context.CancelFunc
	loops sync.WaitGroup

	// mu guards the fields below.
	mu  sync.RWMutex
	all map[CollectionKey]*runningCollection
	// started is the number of collections that were ever started. A new collection numbers its objects from
	// started<<ObjectNumberBits on, so that no two collections share a number.
	started uint64
	// counts has the counts of each key. They outlive the key's collection, so that they go on if it is started again.
	// countsLocked bounds the number of keys.
	counts map[CollectionKey]*collectionCounts
	// eager has the keys of [Collections.Keep]. Their collections are not dropped when idle or to free memory.
	eager map[CollectionKey]bool
	bans  bans
	// checkResults and mismatches count the results of self-checks (selfcheck.go), and objects that a verification found to
	// differ (verifyafterchange.go).
	checkResults map[CheckResult]uint64
	mismatches   map[CollectionKey]MismatchStats
}

// runningCollection is a collection whose feed runs until stop is called.
type runningCollection struct {
	*Collection
	stop         context.CancelFunc
	verification verification
	// checkedAt is the time at which the last self-check ended; zero if there was none. The next one begins with the key
	// checkFrom. Only selfCheckLoop uses these two fields.
	checkedAt time.Time
	checkFrom string
}

// NewCollections returns an empty set of collections. The caller must close it.
func NewCollections(config Config) *Collections {
	ctx, stop := context.WithCancel(context.Background())
	c := &Collections{
		config: config,
		shared: shared{
			budget:    &budget{limit: config.MaxBytes},
			outage:    config.Outage,
			pacer:     &watch.Pacer{},
			probes:    &source.ProbeCounter{},
			loadSlots: semaphore.NewWeighted(maxLoads),
		},
		startLimiter: rate.NewLimiter(startsPerSecond, startsAtOnce),
		ctx:          ctx,
		stop:         stop,
		all:          map[CollectionKey]*runningCollection{},
		counts:       map[CollectionKey]*collectionCounts{},
		eager:        map[CollectionKey]bool{},
		bans:         bans{},
		checkResults: map[CheckResult]uint64{CheckAgrees: 0, CheckMismatch: 0, CheckInconclusive: 0},
		mismatches:   map[CollectionKey]MismatchStats{},
	}
	c.loops.Go(c.tidyLoop)
	for range verifyLoops {
		c.loops.Go(c.verifyLoop)
	}
	if config.SelfCheckInterval > 0 {
		c.loops.Go(func() { c.selfCheckLoop(config.SelfCheckInterval) })
	}
	return c
}

// Close stops all loops and waits for their end.
func (c *Collections) Close() {
	c.mu.Lock()
	c.stop() // under the lock, so that findOrStart starts no feed while Wait waits
	c.mu.Unlock()
	c.loops.Wait()
}

// Use returns a collection, which it starts if necessary. If the collection cannot be started now, Use returns the reason:
// for example, Warming if many collections were started in a short time.
func (c *Collections) Use(key CollectionKey) (*Collection, reason.Reason) {
	found, why := c.Find(key)
	if found != nil || why != reason.None {
		return found, why
	}
	return c.findOrStart(key)
}

// Find returns a collection, but does not start it:
//
//	the collection          Find returns
//	runs                    the collection, None
//	may be started by Use   nil, None
//	must not be started     nil, the reason
func (c *Collections) Find(key CollectionKey) (*Collection, reason.Reason) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if found := c.all[key]; found != nil {
		return found.Collection, reason.None
	}
	return nil, c.refusalLocked(key)
}

// refusalLocked returns the reason why a collection must not be started now; None if it may be started.
func (c *Collections) refusalLocked(key CollectionKey) reason.Reason {
	if c.ctx.Err() != nil { // after Close: the process ends
		return reason.Warming
	}
	if why := c.bans.whyNotStart(key, time.Now()); why != reason.None {
		return why
	}
	if len(c.all) >= maxCollections || c.shared.budget.crowded() {
		return reason.Memory
	}
	return reason.None
}

// Keep makes a collection eager and starts it. If it cannot be started now, Keep returns the reason, and the collection is
// eager nevertheless.
func (c *Collections) Keep(key CollectionKey) (*Collection, reason.Reason) {
	c.mu.Lock()
	c.eager[key] = true
	c.mu.Unlock()
	return c.findOrStart(key)
}

// findOrStart returns a collection. If it does not run yet, findOrStart starts it and its feed, or returns the reason why
// not.
func (c *Collections) findOrStart(key CollectionKey) (*Collection, reason.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.all[key]; found != nil {
		return found.Collection, reason.None
	}
	if refusal := c.refusalLocked(key); refusal != reason.None {
		return nil, refusal
	}
	if !c.eager[key] && !c.startLimiter.Allow() {
		return nil, reason.Warming
	}
	settings := c.config.Settings(key.GroupVersionResource)
	collection := c.newCollectionLocked(key, settings)
	ctx, stop := context.WithCancel(c.ctx)
	c.all[key] = &runningCollection{Collection: collection, stop: stop}
	c.loops.Go(func() { c.newFeed(collection, settings).run(ctx) })
	return collection, reason.None
}

// newCollectionLocked returns an empty collection with the settings of its resource.
func (c *Collections) newCollectionLocked(key CollectionKey, settings Settings) *Collection {
	limits := c.config.Limits
	limits.History = cmp.Or(settings.History, limits.History)
	collection := newCollection(key, limits, c.shared, c.countsLocked(key))
	c.started++
	collection.lastObjectNumber = c.started << index.ObjectNumberBits
	return collection
}

// newFeed returns the feed of a collection.
func (c *Collections) newFeed(collection *Collection, settings Settings) *feed {
	return &feed{
		config:        &c.config,
		source:        c.source(collection.key),
		collection:    collection,
		servesWatches: settings.Watches,
		log:           c.config.Log.With("collection", collection.key.String()),
	}
}

// source returns the source from which a collection is read.
func (c *Collections) source(key CollectionKey) source.Source {
	return source.Source{Client: c.config.Client, Base: c.config.Base, Token: c.config.ContinueToken, Collection: key}
}

// ProbeAll makes all feeds probe the upstream soon, including those that pause after a failure. It is called when the upstream
// answers again after an outage.
func (c *Collections) ProbeAll() {
	for _, r := range c.list() {
		r.requestProbe()
	}
}

// list returns all collections that run.
func (c *Collections) list() []*runningCollection {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Values(c.all))
}

// isEager reports whether [Collections.Keep] was called for a collection.
func (c *Collections) isEager(r *runningCollection) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.eager[r.key]
}
