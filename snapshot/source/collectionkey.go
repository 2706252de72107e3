package source

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
)

// CollectionKey names a collection: a resource as the upstream serves it, in one representation.
// All fields together are the key; two collections never share bytes.
type CollectionKey struct {
	schema.GroupVersionResource
	Namespaced     bool
	Representation media.Representation
}

// String returns the key in the form for logs: pods.v1 (json), or deployments.v1.apps (protobuf).
func (r CollectionKey) String() string {
	name := r.Resource + "." + r.Version
	if r.Group != "" {
		name += "." + r.Group
	}
	return fmt.Sprintf("%s (%s)", name, r.Representation)
}

// path returns the URL path of the resource, in all namespaces if namespace is empty.
func (r CollectionKey) path(namespace string) string {
	p := "/api/" + r.Version
	if r.Group != "" {
		p = "/apis/" + r.Group + "/" + r.Version
	}
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	return p + "/" + r.Resource
}
