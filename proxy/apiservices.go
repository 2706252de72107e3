package proxy

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// apiServiceStore is a Catalog as the store of a reflector.
type apiServiceStore struct{ c *Catalog }

// Add implements cache.ReflectorStore.
func (s apiServiceStore) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s apiServiceStore) Update(obj any) error {
	gv, aggregated, err := readAPIService(obj)
	if err != nil {
		return err
	}
	s.c.mu.Lock()
	was, known := s.c.aggregated[gv]
	if s.c.aggregated != nil { // a list comes first
		s.c.aggregated[gv] = aggregated
	}
	delete(s.c.known, gv)
	s.c.mu.Unlock()
	if known && was != aggregated {
		s.c.moved(gv)
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (s apiServiceStore) Delete(obj any) error {
	gv, _, err := readAPIService(obj)
	if err != nil {
		return err
	}
	s.c.mu.Lock()
	delete(s.c.aggregated, gv)
	delete(s.c.known, gv)
	s.c.mu.Unlock()
	s.c.moved(gv)
	return nil
}

// Replace implements cache.ReflectorStore. It follows a gap, so nothing that
// was read before it is kept.
func (s apiServiceStore) Replace(objs []any, _ string) error {
	aggregated := make(map[schema.GroupVersion]bool, len(objs))
	for _, obj := range objs {
		gv, other, err := readAPIService(obj)
		if err != nil {
			return err
		}
		aggregated[gv] = other
	}
	s.c.mu.Lock()
	before := s.c.aggregated
	s.c.aggregated = aggregated
	s.c.refused = false
	s.c.lost = time.Time{}
	clear(s.c.known)
	s.c.mu.Unlock()
	for gv, was := range before {
		if is, found := aggregated[gv]; !found || is != was {
			s.c.moved(gv)
		}
	}
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (apiServiceStore) Resync() error { return nil }

var _ cache.ReflectorStore = apiServiceStore{}

// readAPIService returns the group/version of an APIService and whether a
// service answers for it instead of the API server. An APIService that cannot
// be read counts as one with a service. (Its name is version.group: validation
// demands it, and a version has no dots.)
func readAPIService(obj any) (schema.GroupVersion, bool, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return schema.GroupVersion{}, false, fmt.Errorf("an APIService came as %T", obj)
	}
	version, group, _ := strings.Cut(u.GetName(), ".")
	spec, ok := u.Object["spec"].(map[string]any)
	return schema.GroupVersion{Group: group, Version: version}, !ok || spec["service"] != nil, nil
}
