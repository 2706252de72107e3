package cluster

import (
	"fmt"
	"regexp"
	"strings"

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
	generation  int64  // counts changes of the spec
	names       string // the accepted ones, in JSON
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

// redefined tells that a CustomResourceDefinition has appeared, changed or gone. After that the upstream may write
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

func readDefinition(o *object) definition {
	d := definition{
		uid: o.Metadata.UID, generation: o.Metadata.Generation, names: string(o.Status.AcceptedNames), fields: map[string][]wire.Field{},
		namespaced: o.Spec.Scope == "Namespaced", established: o.condition("Established") == "True",
	}
	for _, v := range o.Spec.Versions {
		if v.Served {
			d.fields[v.Name] = v.selectableFields()
		}
	}
	return d
}

// definitionVersion is what is read of a version of a CustomResourceDefinition.
type definitionVersion struct {
	Name             string `json:"name"`
	Served           bool   `json:"served"`
	SelectableFields []struct {
		JSONPath string `json:"jsonPath"`
	} `json:"selectableFields"`
}

// simplePath is the path of a selectable field that consists of names only. The API server allows
// more; requests with such fields are forwarded.
var simplePath = regexp.MustCompile(`^(\.[A-Za-z_][A-Za-z0-9_-]*)+$`)

// selectableFields returns the fields that a field selector may name. It leaves out what does not have
// the expected form: requests with unknown fields are forwarded.
func (v definitionVersion) selectableFields() []wire.Field {
	var found []wire.Field
	for _, f := range v.SelectableFields {
		if simplePath.MatchString(f.JSONPath) {
			// The API server names a field by its path without the first dot.
			name := f.JSONPath[1:]
			found = append(found, wire.Field{Name: name, JSON: strings.Split(name, ".")})
		}
	}
	return found
}
