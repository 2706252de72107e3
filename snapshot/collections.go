package snapshot

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

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
	// Client and Base reach the upstream with the proxy's own credentials.
	Client *http.Client
	Base   *url.URL
	// Elsewhere is a Client that sends each request over a connection of its own: behind a load balancer
	// another API server may answer.
	Elsewhere *http.Client
	Limits    Limits
	// Outage says whether nobody answers upstream; nil: that is never known.
	Outage func() clock.Outage
	// SameTimeline says whether an API server that was there well before a stream was last heard is still there, and
	// has written since the storage was at a revision: so the timeline up to there is the same. With mayBe it may soon
	// be known. Nil: it is never known.
	SameTimeline func(ctx context.Context, revision uint64, heard time.Time) (same, mayBe bool)
	// Bytes bounds what all collections store together; 0 is no bound.
	Bytes int64
	// Idle is the time for which a collection that nobody asks for is kept; 0 is for ever.
	Idle time.Duration
	// Settings returns the settings of a resource that differ from these; nil means that none do.
	Settings func(schema.GroupVersionResource) Settings
	// Fields returns the fields of a resource that a field selector may name, beside
	// metadata.name and metadata.namespace; nil is none. What the upstream does not accept is
	// left out. It is called at each start of a feed.
	Fields func(context.Context, schema.GroupVersionResource) ([]wire.Field, error)
	// SelfCheck is how often each live collection is compared with the upstream; 0 is never.
	SelfCheck time.Duration
	// ContinueToken makes the upstream's token for a page at a revision, from a key on. Comparisons
	// need it.
	ContinueToken func(revision uint64, start string) string
	Log           *slog.Logger
}

// Settings are the settings for the collections of one resource.
type Settings struct {
	// History is how far back states are kept; 0 is as for all.
	History time.Duration
	// Watches reports whether clients may follow its collections.
	Watches bool
}

const (
	// startsPerSecond and startsAtOnce bound how fast callers can start collections: a caller with
	// rights in only one namespace can ask for every resource in every representation.
	startsPerSecond = 5
	startsAtOnce    = 32
	// maxCollections bounds how many collections callers can cause.
	maxCollections = 1000
	// maxLoads is the number of collections that load their first state at the same time.
	maxLoads = 4
	// rested is the time for which a collection must not have been asked for before it may be dropped to free
	// memory.
	rested = time.Minute
	// tidyEvery is how often history is cut.
	tidyEvery = time.Second
)

// Collections are all that is held of one upstream. Safe for concurrent use.
type Collections struct {
	config Config
	budget *budget
	// loads bounds how many feeds load at the same time.
	loads  chan struct{}
	starts *rate.Limiter
	ctx    context.Context
	stop   context.CancelFunc
	feeds  sync.WaitGroup

	mu  sync.RWMutex
	all map[CollectionKey]*running
	// made counts all collections since the start.
	made uint64
	// counts has the counters of every resource that ever had a state.
	counts map[CollectionKey]*feedCounts
	// eager are the resources that stay, also after a collection of theirs was dropped.
	eager map[CollectionKey]struct{}
	// bans say which collections must not be kept now.
	bans bans
	// changes are never written to.
	changes changes

	checks selfChecks
	// toVerify gets values when there are collections to verify.
	toVerify chan struct{}
	// pacer spreads the ends of the watches of all.
	pacer watch.Pacer
	// probes numbers the probes of all.
	probes source.ProbeNumbers
}

// running is a collection and the feed that keeps it.
type running struct {
	*Collection
	stop context.CancelFunc
	// watches reports whether clients may follow it.
	watches      bool
	verification verification
}

// NewCollections returns an empty set. Close ends it.
func NewCollections(config Config) *Collections {
	ctx, stop := context.WithCancel(context.Background())
	c := &Collections{
		config:   config,
		budget:   &budget{limit: config.Bytes},
		loads:    make(chan struct{}, maxLoads),
		toVerify: make(chan struct{}, maxVerifying),

		starts: rate.NewLimiter(startsPerSecond, startsAtOnce),
		ctx:    ctx,
		stop:   stop,
		all:    map[CollectionKey]*running{},
		counts: map[CollectionKey]*feedCounts{},

		eager: map[CollectionKey]struct{}{},
		bans:  bans{},
	}
	c.feeds.Go(c.tidy)
	for range maxVerifying {
		c.feeds.Go(c.verifyLoop)
	}
	if config.SelfCheck > 0 {
		c.feeds.Go(func() { c.selfCheck(config.SelfCheck) })
	}
	return c
}

// Close stops all feeds and forgets what they knew.
func (c *Collections) Close() {
	c.mu.Lock()
	c.stop() // no feed begins after that
	c.mu.Unlock()
	c.feeds.Wait()
}

// Use returns the collection of a resource, and starts it if it is not there yet. Only a few may
// start in a short time: otherwise it returns Warming, and one of the next requests starts it.
func (c *Collections) Use(r CollectionKey) (*Collection, reason.Reason) {
	if found := c.find(r); found != nil {
		return found.Collection, reason.None
	}
	return c.start(r)
}

// Find returns the collection of a resource, or why there can be none now. If there is neither, Use may start it.
func (c *Collections) Find(r CollectionKey) (*Collection, reason.Reason) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if found := c.all[r]; found != nil {
		return found.Collection, reason.None
	}
	return nil, c.refusesLocked(r)
}

// find returns the collection of a resource; nil if it is not there.
func (c *Collections) find(r CollectionKey) *running {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.all[r]
}

// Expired says that the upstream has ended somebody's watch of a resource with a 410: it has made its
// watch cache anew. Feeds that wait before they ask again need not wait any longer.
func (c *Collections) Expired(gvr schema.GroupVersionResource) {
	for _, r := range c.list() {
		if r.resource.GroupVersionResource == gvr {
			r.requestProbe()
		}
	}
}

// Resume has all feeds that wait before they ask the upstream again do so now.
func (c *Collections) Resume() {
	for _, r := range c.list() {
		r.requestProbe()
	}
}

// Keep starts a collection that stays, whether it is asked for or not.
func (c *Collections) Keep(r CollectionKey) (*Collection, reason.Reason) {
	c.mu.Lock()
	c.eager[r] = struct{}{}
	c.mu.Unlock()
	return c.start(r)
}

func (c *Collections) start(r CollectionKey) (*Collection, reason.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.all[r]; found != nil {
		return found.Collection, reason.None
	}
	if why := c.refusesLocked(r); why != reason.None {
		return nil, why
	}
	if _, eager := c.eager[r]; !eager && !c.starts.Allow() {
		return nil, reason.Warming
	}
	ctx, stop := context.WithCancel(c.ctx)
	entry := c.newRunningLocked(r, stop)
	collection := entry.Collection
	c.all[r] = entry
	f := &feed{
		source:       c.source(r),
		collection:   collection,
		elsewhere:    c.config.Elsewhere,
		sameTimeline: c.config.SameTimeline,
		fields: func(ctx context.Context) ([]wire.Field, error) {
			if c.config.Fields == nil {
				return nil, nil
			}
			return c.config.Fields(ctx, r.GroupVersionResource)
		},
		loads:    c.loads,
		watches:  entry.watches,
		makeRoom: func() bool { return c.makeRoomFor(entry) },
		log:      c.config.Log.With("collection", r.String()),
	}
	c.feeds.Go(func() { f.run(ctx) })
	return collection, reason.None
}

// source reads a resource from the upstream.
func (c *Collections) source(r CollectionKey) source.Source {
	return source.Source{Client: c.config.Client, Base: c.config.Base, Token: c.config.ContinueToken, Resource: r}
}

// refusesLocked returns the reason why a collection must not be started now.
func (c *Collections) refusesLocked(r CollectionKey) reason.Reason {
	if c.ctx.Err() != nil {
		return reason.Warming
	}
	if why := c.bans.why(r, time.Now()); why != reason.None {
		return why
	}
	if len(c.all) >= maxCollections || c.budget.crowded() {
		return reason.Memory
	}
	return reason.None
}

// newRunningLocked makes a collection with the settings of its resource.
func (c *Collections) newRunningLocked(r CollectionKey, stop context.CancelFunc) *running {
	var settings Settings
	if c.config.Settings != nil {
		settings = c.config.Settings(r.GroupVersionResource)
	}
	limits := c.config.Limits
	if settings.History > 0 {
		limits.History = settings.History
	}
	collection := newCollection(r, limits, c.budget, &c.pacer, &c.probes)
	collection.outage = c.config.Outage
	collection.life.counts = c.countsLocked(r)
	c.made++
	collection.objects = c.made << index.ObjectNumberBits
	return &running{Collection: collection, stop: stop, watches: settings.Watches}
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

func (c *Collections) isEager(r *running) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, eager := c.eager[r.resource]
	return eager
}
