// Package kinds is the kinds of objects that tests write and list: their paths, their objects and,
// for custom ones, their definitions.
package kinds

import (
	"encoding/json"
	"strings"
)

// Fields are those of a JSON object.
type Fields = map[string]any

// Kind is a resource. Kinds can be compared.
type Kind struct {
	APIVersion, Name, Plural string
	ClusterScoped            bool
	// Rest is what an object needs beside its metadata, in JSON: `{"spec":{}}`.
	Rest string
}

// Group of the resource; "" is kube-apiserver's first one.
func (k Kind) Group() string {
	group, _, found := strings.Cut(k.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}

// Path of the whole resource, or of one namespace.
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

// Eager is what --eager calls the resource.
func (k Kind) Eager() string {
	group, version, found := strings.Cut(k.APIVersion, "/")
	if !found {
		return k.Plural
	}
	return k.Plural + "." + version + "." + group
}

// Object is a new one with a name.
func (k Kind) Object(name string) Fields {
	object := Fields{}
	if k.Rest != "" {
		if err := json.Unmarshal([]byte(k.Rest), &object); err != nil {
			panic(err) // a mistake in the test
		}
	}
	object["apiVersion"], object["kind"], object["metadata"] = k.APIVersion, k.Name, Fields{"name": name}
	return object
}

// Namespace is a new one.
func Namespace(name string) Fields { return Kind{APIVersion: "v1", Name: "Namespace"}.Object(name) }

// Touch is a patch that changes an object, if its value is a new one.
func Touch(value string) Fields {
	return Fields{"metadata": Fields{"annotations": Fields{"touched": value}}}
}

// Definitions is the path of all CustomResourceDefinitions.
const Definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// Definition of a custom kind, with these versions; without any, v1 with objects that may hold
// anything.
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
