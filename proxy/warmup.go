package proxy

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/snapshot"
)

// EagerCollection is one that is loaded before anybody asks, and kept.
type EagerCollection struct {
	schema.GroupVersionResource
	Representation media.Representation
}

// warmupRetry is the pause between two attempts to start or check a collection.
const warmupRetry = 2 * time.Second

// Warmup loads the eager collections before the first request, and says when they are loaded: a
// replica that got traffic earlier would send all of it upstream at once. Once all are loaded, it
// stays ready: if a collection is lost later, its lists are forwarded, and Warmup starts it again
// as soon as possible, without waiting for a request.
type Warmup struct {
	cluster     *cluster.Cluster
	collections *snapshot.Collections
	log         *slog.Logger

	mu      sync.Mutex
	waiting map[EagerCollection]string // why not yet
	order   []EagerCollection
}

// NewWarmup returns a Warmup of the eager collections. eager must name each of them once. Call Run
// to start it.
func NewWarmup(
	eager []EagerCollection, served *cluster.Cluster, collections *snapshot.Collections, log *slog.Logger,
) *Warmup {
	w := &Warmup{
		cluster:     served,
		collections: collections,
		log:         log,
		waiting:     map[EagerCollection]string{},
		order:       eager,
	}
	for _, e := range eager {
		w.waiting[e] = string(reason.Warming)
	}
	return w
}

// Run starts the eager collections, and starts them again when they were dropped, until ctx ends.
func (w *Warmup) Run(ctx context.Context) {
	var started sync.WaitGroup
	for _, e := range w.order {
		started.Go(func() { w.warm(ctx, e) })
	}
	started.Wait()
}

func (w *Warmup) warm(ctx context.Context, e EagerCollection) {
	warm := false
	for ctx.Err() == nil {
		why := w.start(ctx, e)
		if !warm {
			w.note(e, why)
			warm = why == ""
		}
		select {
		case <-time.After(warmupRetry):
		case <-ctx.Done():
		}
	}
}

// start makes sure that the collection runs, and waits for its first state. If there is none, it
// returns why.
func (w *Warmup) start(ctx context.Context, e EagerCollection) string {
	entry, why := w.cluster.Lookup(e.GroupVersionResource)
	if why == "" && entry.Custom && e.Representation == media.Protobuf {
		why = reason.Representation // custom resources do not have it
	}
	if why != "" {
		return string(why)
	}
	collection, absence := w.collections.Keep(snapshot.Resource{
		GroupVersionResource: e.GroupVersionResource, Namespaced: entry.Namespaced, Representation: e.Representation,
	})
	if absence == reason.None {
		absence = collection.AwaitLoad(ctx, warmupRetry, false)
	}
	if absence == reason.Warming && collection != nil {
		if err := collection.Trouble(); err != nil {
			return inOneLine(err.Error())
		}
	}
	return string(absence)
}

// longestTrouble bounds, in bytes, what is said of an error of the upstream.
const longestTrouble = 500

// inOneLine is a text without line breaks, and not too long.
func inOneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > longestTrouble {
		text = strings.ToValidUTF8(text[:longestTrouble], "") + " …"
	}
	return text
}

func (w *Warmup) note(e EagerCollection, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if why == "" {
		delete(w.waiting, e)
		return
	}
	switch {
	case w.waiting[e] == why:
	case why == string(reason.UnknownResource):
		w.log.Warn("an eager resource is not one that kube-apiserver serves, so this replica does not get ready: correct its name or "+
			"version in --eager", "resource", eagerName(e))
	default:
		w.log.Info("an eager collection is not warm", "resource", eagerName(e), "reason", why)
	}
	w.waiting[e] = why
}

// EagerStats says whether an eager collection is loaded.
type EagerStats struct {
	// Name is the resource, followed by the representation unless it is JSON.
	Name string
	// Waits is why it is not loaded yet; empty if it is.
	Waits string
}

// Stats returns one for each eager collection, in their order.
func (w *Warmup) Stats() []EagerStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	var stats []EagerStats
	for _, e := range w.order {
		stats = append(stats, EagerStats{Name: eagerName(e), Waits: w.waiting[e]})
	}
	return stats
}

// eagerName names a collection as --eager does, always with the version: the representation follows,
// unless it is JSON.
func eagerName(e EagerCollection) string {
	name := strings.TrimSuffix(e.Resource+"."+e.Version+"."+e.Group, ".")
	if e.Representation != media.JSON {
		name += "/" + string(e.Representation)
	}
	return name
}
