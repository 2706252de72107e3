package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/snapshot"
)

// storageVersions reads the StorageVersion objects where the upstream has them (feature gate
// StorageVersionAPI, off by default). There each API server says in which version it writes a
// resource. While they disagree, or have said nothing yet, nothing is kept of the resource. That they
// agree does not prove that the bytes are the same: another release can write the same version in
// other bytes.
//
// They are read when the API servers have changed, once more after [snapshot.Skew] (one that has just
// started may not have said anything yet), and again and again while there is a disagreement. It ends
// when the API servers agree, when the object is deleted, or when StorageVersions are no longer served.
//
// Resources that are stored together under several groups have one object, for one of these
// groups; kube-apiserver 1.36 has only Events of that kind, which are never kept.
type storageVersions struct {
	objects dynamic.ResourceInterface
	// disagree is told when API servers begin and cease to disagree about a resource.
	disagree func(schema.GroupResource, bool)
	log      *slog.Logger
	// servers gets a value when the API servers have changed.
	servers chan struct{}
	// disputed are the resources about which they disagree. Only the goroutine of run uses it.
	disputed map[schema.GroupResource]bool
}

// newStorageVersions returns storageVersions, which do nothing until run runs. disagree is called from
// there. cfg has the proxy's own credentials.
func newStorageVersions(cfg *rest.Config, disagree func(schema.GroupResource, bool), log *slog.Logger) (*storageVersions, error) {
	client, err := clientOf(cfg, listTimeout, dynamic.NewForConfigAndClient)
	if err != nil {
		return nil, fmt.Errorf("cannot read StorageVersions: %w", err)
	}
	gvr := schema.GroupVersionResource{Group: "internal.apiserver.k8s.io", Version: "v1alpha1", Resource: "storageversions"}
	return &storageVersions{
		objects: client.Resource(gvr), disagree: disagree, log: log,
		servers: make(chan struct{}, 1), disputed: map[schema.GroupResource]bool{},
	}, nil
}

// serversChanged makes them be read.
func (s *storageVersions) serversChanged() {
	select {
	case s.servers <- struct{}{}:
	default: // they will be
	}
}

// run reads the objects now, and whenever there is a reason, until ctx ends.
func (s *storageVersions) run(ctx context.Context) {
	for again := true; ; {
		list, err := s.objects.List(ctx, metav1.ListOptions{})
		if ctx.Err() != nil {
			return
		}
		var soon <-chan time.Time
		switch {
		case err == nil:
			s.take(list.Items)
		case isRefused(err):
			s.log.Debug("objects of type StorageVersion are not served, or may not be read", "error", err)
			s.take(nil)
		default:
			again = true
		}
		if again || len(s.disputed) > 0 {
			soon = time.After(snapshot.Skew)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.servers:
			again = true
		case <-soon:
			again = false
		}
	}
}

// take tells about which resources the API servers begin and cease to disagree.
func (s *storageVersions) take(objects []unstructured.Unstructured) {
	disputed := map[schema.GroupResource]bool{}
	for i := range objects {
		if resource, agreed := readStorageVersion(&objects[i]); !agreed {
			disputed[resource] = true
		}
	}
	for resource := range disputed {
		if !s.disputed[resource] {
			s.log.Info("the API servers do not agree in which version they write a resource: it is forwarded until they do",
				"resource", resource.String())
			s.disagree(resource, true)
		}
	}
	for resource := range s.disputed {
		if !disputed[resource] {
			s.log.Info("the API servers agree again in which version they write a resource", "resource", resource.String())
			s.disagree(resource, false)
		}
	}
	s.disputed = disputed
}

// readStorageVersion returns the resource that a StorageVersion is about, and whether the API servers
// agree on a version. Its name is group.resource, with core for the group that has no name
// (k8s.io/apiserver/pkg/storageversion); a resource's name has no dots.
func readStorageVersion(o *unstructured.Unstructured) (of schema.GroupResource, agreed bool) {
	dot := strings.LastIndexByte(o.GetName(), '.')
	of = schema.GroupResource{Group: o.GetName()[:max(0, dot)], Resource: o.GetName()[dot+1:]}
	if of.Group == "core" {
		of.Group = ""
	}
	// A version that cannot be read is not an agreement.
	version, _, _ := unstructured.NestedString(o.Object, "status", "commonEncodingVersion")
	agreed = version != ""
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == "AllEncodingVersionsEqual" && condition["status"] == "False" {
			agreed = false
		}
	}
	return of, agreed
}
