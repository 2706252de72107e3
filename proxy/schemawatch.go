package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// WatchSchemas calls changed whenever the definition of a custom resource appeared, changed or
// went. After that the upstream may write the same objects in other bytes, without any event
// about them; and for a moment its old watches go on with the old schema. It asks for metadata
// only: a change of a CustomResourceDefinition's spec shows as another generation. It runs until
// ctx ends; the error is about cfg. changed may be called from several goroutines.
func WatchSchemas(ctx context.Context, cfg *rest.Config, changed func(schema.GroupResource), log *slog.Logger) error {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 0 // it would end the watch
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("cannot watch CustomResourceDefinitions: %w", err)
	}
	gvr := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	var refused sync.Once
	follower{
		name:         gvr.Resource,
		listWatch:    metadataListWatch(client.Resource(gvr)),
		expectedType: &metav1.PartialObjectMetadata{},
		store:        &definitions{changed: changed, known: map[string]definition{}},
		log:          log,
		ended: func(err error) {
			if isRefused(err) {
				refused.Do(func() {
					log.WarnContext(ctx, "CustomResourceDefinitions may not be watched: after one changes, its resources may be answered under the old schema",
						"grant", "list and watch on customresourcedefinitions.apiextensions.k8s.io", "error", err)
				})
			}
		},
	}.follow(ctx)
	return nil
}

// definition is the identity of a CustomResourceDefinition's spec.
type definition struct {
	uid        types.UID
	generation int64
}

// definitions is a reflector's store that remembers which definitions there are, and reports
// those that are not what they were.
type definitions struct {
	changed func(schema.GroupResource)

	mu     sync.Mutex
	synced bool
	known  map[string]definition
}

var _ cache.ReflectorStore = (*definitions)(nil)

// Add implements cache.ReflectorStore.
func (d *definitions) Add(obj any) error { return d.Update(obj) }

// Update implements cache.ReflectorStore.
func (d *definitions) Update(obj any) error {
	name, is, err := definitionOf(obj)
	if err != nil {
		return err
	}
	d.mu.Lock()
	was := d.known[name]
	d.known[name] = is
	d.mu.Unlock()
	if was != is {
		d.report(name)
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (d *definitions) Delete(obj any) error {
	name, _, err := definitionOf(obj)
	if err != nil {
		return err
	}
	d.mu.Lock()
	delete(d.known, name)
	d.mu.Unlock()
	d.report(name)
	return nil
}

// Replace implements cache.ReflectorStore. The first list only tells what there is; a later one
// comes after a gap, and is held against what there was.
func (d *definitions) Replace(objs []any, _ string) error {
	listed := make(map[string]definition, len(objs))
	for _, obj := range objs {
		name, is, err := definitionOf(obj)
		if err != nil {
			return err
		}
		listed[name] = is
	}
	d.mu.Lock()
	was, synced := d.known, d.synced
	d.known, d.synced = listed, true
	d.mu.Unlock()
	if !synced {
		return nil
	}
	for name, is := range listed {
		if was[name] != is {
			d.report(name)
		}
	}
	for name := range was {
		if _, found := listed[name]; !found {
			d.report(name)
		}
	}
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (d *definitions) Resync() error { return nil }

// report tells which resource a definition is about: its name is plural.group.
func (d *definitions) report(name string) {
	resource, group, _ := strings.Cut(name, ".")
	d.changed(schema.GroupResource{Group: group, Resource: resource})
}

func definitionOf(obj any) (string, definition, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return "", definition{}, fmt.Errorf("a CustomResourceDefinition without metadata: %w", err)
	}
	return m.GetName(), definition{uid: m.GetUID(), generation: m.GetGeneration()}, nil
}
