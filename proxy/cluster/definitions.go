package cluster

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// definition is what counts of a CustomResourceDefinition. What is not in it, like annotations, changes
// no answer: kube-apiserver serves a resource anew only if the spec or the accepted names have changed
// (k8s.io/apiextensions-apiserver, updateCustomResourceDefinition).
type definition struct {
	uid         types.UID
	generation  int64 // counts changes of the spec
	names       apiextensionsv1.CustomResourceDefinitionNames
	established bool
	namespaced  bool
	// fields are those that a field selector may name, by served version (Kubernetes 1.30 and later).
	fields map[string][]wire.Field
}

// entry returns what the definition says of one of its versions.
func (d definition) entry(version string) (Entry, reason.Reason) {
	if _, served := d.fields[version]; !served || !d.established {
		return Entry{}, reason.UnknownResource
	}
	return Entry{Namespaced: d.namespaced, Custom: true}, reason.None
}

// redefined: a CustomResourceDefinition has appeared, changed or gone. After that the upstream may write
// the same objects in other bytes, without any event about them. Each API server learns of it by itself,
// and its watches from before go on with the old schema for a while. A definition's name is plural.group.
func (c *Cluster) redefined(of change[definition]) {
	if of.was == nil || !of.was.established {
		return // so nothing was kept
	}
	resource, group, _ := strings.Cut(of.name, ".")
	gr, what := schema.GroupResource{Group: group, Resource: resource}, difference(of)
	c.config.Log.Info("a CustomResourceDefinition changed: what is kept of its resource is dropped",
		"definition", gr.String(), "change", what, "again", snapshot.Skew)
	c.config.Invalidate(snapshot.Invalidation{
		Cause: snapshot.Definition, Scope: snapshot.OfResource(gr), Until: snapshot.For(snapshot.Skew), What: what,
	})
}

// difference says in words what has changed about a definition.
func difference(c change[definition]) string {
	switch was, is := c.was, c.is; {
	case is == nil:
		return "deleted"
	case was.uid != is.uid:
		return "deleted and made again"
	case was.generation == is.generation:
		return "accepted names, or whether it is established"
	default:
		return fmt.Sprintf("generation %d to %d", was.generation, is.generation)
	}
}

func readDefinition(o runtime.Object) (definition, error) {
	crd, ok := o.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return definition{}, fmt.Errorf("a CustomResourceDefinition came as %T", o)
	}
	is := definition{
		uid: crd.UID, generation: crd.Generation, names: crd.Status.AcceptedNames, fields: map[string][]wire.Field{},
		namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		established: slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		}),
	}
	for _, v := range crd.Spec.Versions {
		if v.Served {
			is.fields[v.Name] = selectableFields(v)
		}
	}
	return is, nil
}

// simplePath is the path of a selectable field that consists of names only. The API server allows
// more; requests with such fields are forwarded.
var simplePath = regexp.MustCompile(`^(\.[A-Za-z_][A-Za-z0-9_-]*)+$`)

// selectableFields reads the fields from a version of a definition. It leaves out what does not have
// the expected form: requests with unknown fields are forwarded.
func selectableFields(version apiextensionsv1.CustomResourceDefinitionVersion) []wire.Field {
	var found []wire.Field
	for _, f := range version.SelectableFields {
		if simplePath.MatchString(f.JSONPath) {
			// The API server names a field by its path without the first dot.
			name := f.JSONPath[1:]
			found = append(found, wire.Field{Name: name, JSON: strings.Split(name, ".")})
		}
	}
	return found
}
