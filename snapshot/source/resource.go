package source

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
)

// Resource names a collection: a resource as the upstream serves it, in one representation.
// All fields together are the key; two collections never share bytes.
type Resource struct {
	schema.GroupVersionResource
	Namespaced     bool
	Representation media.Representation
}

func (r Resource) String() string {
	return fmt.Sprintf("%s.%s.%s (%s)", r.Resource, r.Version, r.Group, r.Representation)
}

// path of the resource, whole or in one namespace.
func (r Resource) path(namespace string) string {
	p := "/api/" + r.Version
	if r.Group != "" {
		p = "/apis/" + r.Group + "/" + r.Version
	}
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	return p + "/" + r.Resource
}
