package discovery

import (
	"fmt"
	"strings"

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
	gv, is, err := readAPIService(obj)
	if err != nil {
		return err
	}
	s.c.mu.Lock()
	was, known := s.c.servers[gv]
	if s.c.servers != nil { // a list comes first
		s.c.servers[gv] = is
	}
	delete(s.c.known, gv)
	s.c.mu.Unlock()
	if known && was != is {
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
	delete(s.c.servers, gv)
	delete(s.c.known, gv)
	s.c.mu.Unlock()
	s.c.moved(gv)
	return nil
}

// Replace implements cache.ReflectorStore. It follows a gap, so nothing that
// was read before it is kept.
func (s apiServiceStore) Replace(objs []any, _ string) error {
	servers := make(map[schema.GroupVersion]server, len(objs))
	for _, obj := range objs {
		gv, is, err := readAPIService(obj)
		if err != nil {
			return err
		}
		servers[gv] = is
	}
	s.c.mu.Lock()
	before := s.c.servers
	s.c.servers = servers
	s.c.refused = false
	clear(s.c.known)
	s.c.mu.Unlock()
	for gv, was := range before {
		if is, found := servers[gv]; !found || is != was {
			s.c.moved(gv)
		}
	}
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (apiServiceStore) Resync() error { return nil }

var _ cache.ReflectorStore = apiServiceStore{}

// automanaged is the label of the APIServices that the API server makes for what
// it serves itself: "onstart" for what is built in, "true" for what follows
// CustomResourceDefinitions (kube-aggregator, autoregister.AutoRegisterManagedLabel).
const automanaged = "kube-aggregator.kubernetes.io/automanaged"

// readAPIService returns the group/version of an APIService and who answers for
// it. One that cannot be read, or that does not say what kind of resources it
// has, counts as one with a service. (Its name is version.group: validation
// demands it, and a version has no dots.)
func readAPIService(obj any) (schema.GroupVersion, server, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return schema.GroupVersion{}, server{}, fmt.Errorf("an APIService came as %T", obj)
	}
	version, group, _ := strings.Cut(u.GetName(), ".")
	spec, ok := u.Object["spec"].(map[string]any)
	label := u.GetLabels()[automanaged]
	is := server{
		aggregated: !ok || spec["service"] != nil || label != "onstart" && label != "true",
		custom:     label == "true",
	}
	service, _ := spec["service"].(map[string]any)
	if name, _ := service["name"].(string); name != "" {
		// Another Service is another server, with revisions of its own.
		is.service = fmt.Sprintf("%v/%s:%v", service["namespace"], name, service["port"])
	}
	return schema.GroupVersion{Group: group, Version: version}, is, nil
}
