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
	// fieldsByVersion has the served versions. The value has the fields that a field selector may name in this version
	// (Kubernetes 1.30 and later).
	fieldsByVersion map[string][]wire.Field
}

// entry returns the entry of the resource in a version, or the reason to forward.
func (d definition) entry(version string) (Entry, reason.Reason) {
	if _, served := d.fieldsByVersion[version]; !served || !d.established {
		return Entry{}, reason.UnknownResource
	}
	return Entry{Namespaced: d.namespaced, Custom: true}, reason.None
}

// definitionChanged invalidates the resource of a CustomResourceDefinition that was changed or deleted: the upstream may now
// encode the same objects in other bytes, and sends no events about them. Open watches still use the old schema for a while,
// and so do API servers that have not learned of the change yet. Therefore [snapshot.Collections.Invalidate] lets nobody load
// the objects again before [snapshot.Skew], ten seconds, has passed. Later it compares them with the upstream.
func (c *Cluster) definitionChanged(change valueChange[definition]) {
	if change.before == nil || !change.before.established {
		return // nothing is in memory
	}
	var description string
	switch {
	case change.after == nil:
		description = "deleted"
	case change.after.uid != change.before.uid:
		description = "deleted and made again"
	default:
		// The spec has changed, which increases the generation. Or the accepted names or the condition Established have
		// changed, at the same generation.
		description = fmt.Sprintf("generation %d to %d", change.before.generation, change.after.generation)
	}
	resource, group, _ := strings.Cut(change.name, ".") // a definition's name is plural.group
	gr := schema.GroupResource{Group: group, Resource: resource}
	c.config.Log.Info("a CustomResourceDefinition changed: what is kept of its resource is dropped",
		"definition", gr.String(), "change", description, "againAfter", snapshot.Skew)
	c.config.Invalidate(snapshot.OfResource(gr), reason.Schema)
}

// readDefinition returns the definition in o, a CustomResourceDefinition.
func readDefinition(o *object) definition {
	d := definition{
		uid:             o.Metadata.UID,
		generation:      o.Metadata.Generation,
		names:           string(o.Status.AcceptedNames),
		established:     meta.IsStatusConditionTrue(o.Status.Conditions, "Established"),
		namespaced:      o.Spec.Scope == "Namespaced",
		fieldsByVersion: map[string][]wire.Field{},
	}
	for _, v := range o.Spec.Versions {
		if v.Served {
			d.fieldsByVersion[v.Name] = v.selectableFields()
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
