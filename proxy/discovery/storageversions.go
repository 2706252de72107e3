package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// storageVersions follows the StorageVersion objects where the upstream has them (feature gate
// StorageVersionAPI, off by default). There each API server says in which version it writes a
// resource. While they disagree, or have said nothing yet, nothing is kept of the resource; when
// they agree on another version than before, it is loaded again. That they agree does not prove
// that the bytes are the same: another release can write the same version in other bytes.
//
// When the stream breaks, a resource that was not kept stays so until the next list. The same holds
// if the objects may no longer be read, since an API server that has just started refuses
// everybody. A disagreement ends when the API servers agree, when the object is deleted, or when
// StorageVersions are no longer served.
//
// Resources that are stored together under several groups have one object, for one of these
// groups; kube-apiserver 1.36 has only Events of that kind, which are never kept.
type storageVersions struct {
	objects dynamic.ResourceInterface
	// disagree is told when API servers begin and cease to disagree about a resource.
	disagree func(schema.GroupResource, bool)
	// rewritten is told when they agree on another version than before.
	rewritten func(schema.GroupResource)
	log       *slog.Logger
	// agreed is the version of each resource, empty while they do not agree; nil until it was
	// listed. Only the goroutine of run uses it.
	agreed  map[schema.GroupResource]string
	refused sync.Once
}

// newStorageVersions returns storageVersions, which do nothing until run runs. disagree and
// rewritten are called from there. cfg has the proxy's own credentials.
func newStorageVersions(
	cfg *rest.Config, disagree func(schema.GroupResource, bool), rewritten func(schema.GroupResource), log *slog.Logger,
) (*storageVersions, error) {
	client, err := clientOf(cfg, 0, dynamic.NewForConfigAndClient)
	if err != nil {
		return nil, fmt.Errorf("cannot watch StorageVersions: %w", err)
	}
	gvr := schema.GroupVersionResource{Group: "internal.apiserver.k8s.io", Version: "v1alpha1", Resource: "storageversions"}
	return &storageVersions{objects: client.Resource(gvr), disagree: disagree, rewritten: rewritten, log: log}, nil
}

// run follows the objects until ctx ends.
func (s *storageVersions) run(ctx context.Context) {
	heard := &heard{}
	follower{
		name:         "storageversions",
		listWatch:    listWatchOf(s.objects),
		expectedType: &unstructured.Unstructured{},
		store:        s.store(heard),
		heard:        heard,
		ended:        s.ended,
		log:          s.log,
	}.follow(ctx)
}

func (s *storageVersions) ended(err error) {
	switch {
	case apierrors.IsForbidden(err):
		// Mostly they are not served either, which only those may know who may read them.
		s.refused.Do(func() {
			s.log.Info("objects of type StorageVersion may not be read: where API servers have them, their disagreement is not heard of",
				"grant", "list and watch on storageversions.internal.apiserver.k8s.io", "error", err)
		})
	case isRefused(err): // not served
		s.take(change[schema.GroupResource, string]{was: s.agreed})
		s.agreed = nil
	}
}

// store returns the store of what follows the StorageVersions.
func (s *storageVersions) store(heard *heard) store[schema.GroupResource, string] {
	return store[schema.GroupResource, string]{read: readStorageVersion, known: &s.agreed, mu: &sync.Mutex{}, changed: s.take, heard: heard}
}

// take tells what changed: on which versions the API servers agree now, or that they do not; and
// about which resources none of them says anything any more.
func (s *storageVersions) take(c change[schema.GroupResource, string]) {
	for resource, was := range c.was {
		if _, found := c.is[resource]; !found && was == "" {
			s.disagree(resource, false)
		}
	}
	for resource, version := range c.is {
		was, found := c.was[resource]
		switch {
		case version == "":
			s.log.Info("the API servers do not agree in which version they write a resource: it is forwarded until they do",
				"resource", resource.String())
			s.disagree(resource, true)
		case found && was == "":
			s.log.Info("the API servers agree again in which version they write a resource", "resource", resource.String(), "version", version)
			s.disagree(resource, false)
		case found:
			s.log.Info("the API servers write a resource in another version than before", "resource", resource.String(), "version", version)
			s.rewritten(resource)
		}
	}
}

// readStorageVersion returns the resource that a StorageVersion is about, and the version on which
// the API servers agree; none if they do not. Its name is group.resource, with core for the group
// that has no name (k8s.io/apiserver/pkg/storageversion); a resource's name has no dots.
func readStorageVersion(obj any) (schema.GroupResource, string, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return schema.GroupResource{}, "", fmt.Errorf("a StorageVersion came as %T", obj)
	}
	name := u.GetName()
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return schema.GroupResource{}, "", fmt.Errorf("a StorageVersion with the name %q, which is not group.resource", name)
	}
	resource := schema.GroupResource{Group: name[:dot], Resource: name[dot+1:]}
	if resource.Group == "core" {
		resource.Group = ""
	}
	// A version that cannot be read is not an agreement.
	version, _, _ := unstructured.NestedString(u.Object, "status", "commonEncodingVersion")
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == "AllEncodingVersionsEqual" && condition["status"] == "False" {
			version = ""
		}
	}
	return resource, version, nil
}
