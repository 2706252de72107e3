// Package kinds describes the kinds of objects that tests write and list: paths, objects, and definitions of custom ones.
package kinds

import (
	"encoding/json"
	"strings"
)

// Fields are the fields of a JSON object.
type Fields = map[string]any

// Kind is a kind of objects and its resource.
type Kind struct {
	APIVersion, Name, Plural string
	ClusterScoped            bool
	// Rest has the fields that an object needs beside its metadata, in JSON: `{"spec":{}}`.
	Rest string
}

// Group returns the group of the resource; "" is the core group.
func (k Kind) Group() string {
	group, _, found := strings.Cut(k.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}

// Path returns the path of the resource in all namespaces if namespace is "", or in one.
func (k Kind) Path(namespace string) string {
	path := "/apis/" + k.APIVersion
	if k.Group() == "" {
		path = "/api/" + k.APIVersion
	}
	if namespace != "" && !k.ClusterScoped {
		path += "/namespaces/" + namespace
	}
	return path + "/" + k.Plural
}

// Eager returns the name of the resource for --eager.
func (k Kind) Eager() string {
	group, version, found := strings.Cut(k.APIVersion, "/")
	if !found {
		return k.Plural
	}
	return k.Plural + "." + version + "." + group
}

// Object returns a new object with a name.
func (k Kind) Object(name string) Fields {
	object := Fields{}
	if k.Rest != "" {
		if err := json.Unmarshal([]byte(k.Rest), &object); err != nil {
			panic(err) // a mistake in the test
		}
	}
	object["apiVersion"], object["kind"] = k.APIVersion, k.Name
	object["metadata"] = Fields{"name": name}
	return object
}

// Namespace returns a new namespace.
func Namespace(name string) Fields { return Kind{APIVersion: "v1", Name: "Namespace"}.Object(name) }

// Touch returns a merge patch that sets an annotation to value.
func Touch(value string) Fields {
	return Fields{"metadata": Fields{"annotations": Fields{"touched": value}}}
}

// Definitions is the path of all CustomResourceDefinitions.
const Definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// Definition returns the CustomResourceDefinition of a kind with these versions, or with a v1 that allows any fields.
func (k Kind) Definition(versions ...any) Fields {
	scope := "Namespaced"
	if k.ClusterScoped {
		scope = "Cluster"
	}
	if len(versions) == 0 {
		open := Fields{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		versions = []any{Fields{"name": "v1", "served": true, "storage": true, "schema": Fields{"openAPIV3Schema": open}}}
	}
	return Fields{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": Fields{"name": k.Plural + "." + k.Group()},
		"spec": Fields{
			"group": k.Group(), "scope": scope, "names": Fields{"plural": k.Plural, "kind": k.Name}, "versions": versions,
		},
	}
}
