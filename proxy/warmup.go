package proxy

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/snapshot"
)

// warmupRetry is how long a resource is left alone that could not be started.
const warmupRetry = 2 * time.Second

// Warmup starts the collections that are to be there before the first request, and says when
// they are: a replica that got traffic before would send all of it upstream at once. Once warm
// it stays so, since a collection that is lost later is a matter of forwarding.
type Warmup struct {
	catalog     *Catalog
	collections *snapshot.Collections
	log         *slog.Logger

	mu      sync.Mutex
	waiting map[schema.GroupVersionResource]string // why not yet
	order   []schema.GroupVersionResource
}

// NewWarmup returns a Warmup of the eager resources. Run does it.
func NewWarmup(eager []schema.GroupVersionResource, catalog *Catalog, collections *snapshot.Collections, log *slog.Logger) *Warmup {
	w := &Warmup{
		catalog:     catalog,
		collections: collections,
		log:         log,
		waiting:     map[schema.GroupVersionResource]string{},
		order:       eager,
	}
	for _, gvr := range eager {
		w.waiting[gvr] = string(policy.ReasonWarming)
	}
	return w
}

// Run starts the eager collections and returns when all are warm, or when ctx ends.
func (w *Warmup) Run(ctx context.Context) {
	var started sync.WaitGroup
	for _, gvr := range w.order {
		started.Go(func() { w.warm(ctx, gvr) })
	}
	started.Wait()
}

func (w *Warmup) warm(ctx context.Context, gvr schema.GroupVersionResource) {
	for ctx.Err() == nil {
		why := w.start(ctx, gvr)
		w.note(gvr, why)
		if why == "" {
			return
		}
		select {
		case <-time.After(warmupRetry):
		case <-ctx.Done():
		}
	}
}

// start makes sure that the collection runs and waits for its first state. It returns why there
// is none.
func (w *Warmup) start(ctx context.Context, gvr schema.GroupVersionResource) string {
	entry, reason := w.catalog.Lookup(ctx, gvr.Group, gvr.Version, gvr.Resource)
	if reason != "" {
		return string(reason)
	}
	collection, absence := w.collections.Keep(snapshot.Resource{
		GroupVersionResource: gvr,
		Namespaced:           entry.Namespaced,
		Accept:               snapshot.JSON,
	})
	if absence == snapshot.Known {
		absence = collection.AwaitFirst(ctx, warmupRetry)
	}
	return string(absence)
}

func (w *Warmup) note(gvr schema.GroupVersionResource, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if why == "" {
		delete(w.waiting, gvr)
		return
	}
	if w.waiting[gvr] != why {
		w.log.Info("an eager collection is not warm", "resource", gvr.GroupResource().String(), "reason", why)
	}
	w.waiting[gvr] = why
}

// Checks say which of the eager collections are warm.
func (w *Warmup) Checks() []Check {
	w.mu.Lock()
	defer w.mu.Unlock()
	var checks []Check
	for _, gvr := range w.order {
		why, waits := w.waiting[gvr]
		checks = append(checks, Check{Name: "collection/" + gvr.GroupResource().String(), OK: !waits, Message: why})
	}
	return checks
}
