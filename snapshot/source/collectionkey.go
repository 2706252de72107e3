package source

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
)

// CollectionKey names a collection: a resource as the upstream serves it, in one representation.
type CollectionKey struct {
	schema.GroupVersionResource
	Namespaced     bool
	Representation media.Representation
}

// String returns the key for logs: pods.v1 (json), or deployments.v1.apps (protobuf).
func (k CollectionKey) String() string {
	name := k.Resource + "." + k.Version
	if k.Group != "" {
		name += "." + k.Group
	}
	return fmt.Sprintf("%s (%s)", name, k.Representation)
}

// path returns the URL path of the resource in a namespace; in all namespaces if namespace is empty.
func (k CollectionKey) path(namespace string) string {
	path := "/api/" + k.Version
	if k.Group != "" {
		path = "/apis/" + k.Group + "/" + k.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + k.Resource
}
