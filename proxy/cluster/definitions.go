package cluster

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// definition has the parts of a CustomResourceDefinition on which answers depend. Other parts, such as annotations, change
// nothing: kube-apiserver builds a resource's handlers anew only if the spec or the accepted names have changed
// (k8s.io/apiextensions-apiserver, updateCustomResourceDefinition).
type definition struct {
	uid         types.UID
	generation  int64  // kube-apiserver increases it when the spec changes
	names       string // the accepted names in JSON
	established bool
	namespaced  bool
	// fields has an entry for each served version: the fields that a field selector may name (Kubernetes 1.30 and later).
	fields map[string][]wire.Field
}

// entry returns the entry of the resource in a version, or the reason to forward.
func (d definition) entry(version string) (Entry, reason.Reason) {
	if _, served := d.fields[version]; !served || !d.established {
		return Entry{}, reason.UnknownResource
	}
	return Entry{Namespaced: d.namespaced, Custom: true}, reason.None
}

// definitionChanged invalidates the resource of a CustomResourceDefinition that was changed or deleted. The upstream may now
// encode the same objects in other bytes, without an event about them. Open watches, and API servers that have not learned of the
// change yet, use the old schema for a while. Therefore the objects are loaded again only after [snapshot.Skew], and are verified
// later (see [Config].Invalidate).
func (c *Cluster) definitionChanged(diff change[definition]) {
	if diff.before == nil || !diff.before.established {
		return // nothing is in memory
	}
	var what string
	switch {
	case diff.after == nil:
		what = "deleted"
	case diff.after.uid != diff.before.uid:
		what = "deleted and made again"
	default: // the spec has changed, or with the same generation the accepted names or the condition Established
		what = fmt.Sprintf("generation %d to %d", diff.before.generation, diff.after.generation)
	}
	resource, group, _ := strings.Cut(diff.name, ".") // a definition's name is plural.group
	gr := schema.GroupResource{Group: group, Resource: resource}
	c.config.Log.Info("a CustomResourceDefinition changed: what is kept of its resource is dropped",
		"definition", gr.String(), "change", what, "againAfter", snapshot.Skew)
	c.config.Invalidate(snapshot.OfResource(gr), reason.Schema)
}

// readDefinition returns the definition in o, a CustomResourceDefinition.
func readDefinition(o *object) definition {
	d := definition{
		uid:         o.Metadata.UID,
		generation:  o.Metadata.Generation,
		names:       string(o.Status.AcceptedNames),
		established: meta.IsStatusConditionTrue(o.Status.Conditions, "Established"),
		namespaced:  o.Spec.Scope == "Namespaced",
		fields:      map[string][]wire.Field{},
	}
	for _, v := range o.Spec.Versions {
		if v.Served {
			d.fields[v.Name] = v.selectableFields()
		}
	}
	return d
}

// definitionVersion has the fields that this package reads of a version of a CustomResourceDefinition.
type definitionVersion struct {
	Name             string `json:"name"`
	Served           bool   `json:"served"`
	SelectableFields []struct {
		JSONPath string `json:"jsonPath"`
	} `json:"selectableFields"`
}

// simplePath matches the path of a selectable field that consists of names only. The API server also allows paths with brackets
// and escapes. Requests that select by such a field are forwarded.
var simplePath = regexp.MustCompile(`^(\.[A-Za-z_][A-Za-z0-9_-]*)+$`)

// selectableFields returns the fields that a field selector may name. It leaves out fields whose path is not a simplePath.
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
