package discovery

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// simplePath is the path of a selectable field that consists of names only. The API server allows
// more; requests with such fields are forwarded.
var simplePath = regexp.MustCompile(`^(\.[A-Za-z_][A-Za-z0-9_-]*)+$`)

// fields returns the fields of a custom resource that a field selector may name, as its
// definition says (spec.versions[].selectableFields, Kubernetes 1.30 and later). The definition is
// read for each call, and must be the one that Schemas knows: a newer one is about to arrive there.
func (s *Schemas) fields(ctx context.Context, gvr schema.GroupVersionResource) ([]wire.Field, error) {
	name := gvr.GroupResource().String()
	// A list of one: the account may list definitions already, since it follows them.
	found, err := s.definitions.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, fmt.Errorf("reading the CustomResourceDefinition %s: %w", name, err)
	}
	if len(found.Items) != 1 {
		return nil, fmt.Errorf("there is no CustomResourceDefinition %s", name)
	}
	definition := &found.Items[0]
	_, is, err := definitionOf(definition)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	known := s.known[name]
	s.mu.Unlock()
	if known != is {
		return nil, fmt.Errorf("the CustomResourceDefinition %s changes right now", name)
	}
	return selectableFields(definition, gvr.Version), nil
}

// selectableFields reads the fields from a definition. It leaves out what does not have the
// expected form: requests with unknown fields are forwarded.
func selectableFields(definition *unstructured.Unstructured, version string) []wire.Field {
	var found []wire.Field
	spec, _ := definition.Object["spec"].(map[string]any)
	for _, v := range objects(spec["versions"]) {
		if v["name"] != version {
			continue
		}
		for _, f := range objects(v["selectableFields"]) {
			if path, ok := f["jsonPath"].(string); ok && simplePath.MatchString(path) {
				// The API server names a field by its path without the first dot.
				name := path[1:]
				found = append(found, wire.Field{Name: name, JSON: strings.Split(name, ".")})
			}
		}
	}
	return found
}

// objects are the objects in a list; none of anything else.
func objects(list any) []map[string]any {
	elements, _ := list.([]any)
	var found []map[string]any
	for _, element := range elements {
		if object, ok := element.(map[string]any); ok {
			found = append(found, object)
		}
	}
	return found
}
