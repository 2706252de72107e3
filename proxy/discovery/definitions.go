package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Schemas follows the definitions of custom resources. After one has changed, the upstream may write
// the same objects in other bytes, without any event about them; and for a moment its old watches go
// on with the old schema. So custom resources are answered from memory only while a change would be
// heard of. It is safe for concurrent use.
type Schemas struct {
	definitions reflector[definition]
	// changed is told that a definition has appeared, changed or gone, what has changed, and whether the
	// resource was served before.
	changed func(of schema.GroupResource, what string, served bool)
}

// definition is what counts of a CustomResourceDefinition. What is not in it, like annotations, changes
// no answer: kube-apiserver serves a resource anew only if the spec or the accepted names have changed
// (k8s.io/apiextensions-apiserver, updateCustomResourceDefinition).
type definition struct {
	uid         types.UID
	generation  int64 // counts changes of the spec
	names       apiextensionsv1.CustomResourceDefinitionNames
	established bool
	// fields are those that a field selector may name, by served version (Kubernetes 1.30 and later).
	fields map[string][]wire.Field
}

// newSchemas returns Schemas that know nothing until run runs.
func newSchemas(
	cfg *rest.Config, changed func(of schema.GroupResource, what string, served bool), log *slog.Logger,
) (*Schemas, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json" // definitions are large
	client, err := clientOf(cfg, 0, apiextensions.NewForConfigAndClient)
	if err != nil {
		return nil, fmt.Errorf("cannot watch CustomResourceDefinitions: %w", err)
	}
	s := &Schemas{changed: changed}
	s.definitions = reflector[definition]{
		resource: "customresourcedefinitions",
		source:   listWatchOf(client.CustomResourceDefinitions()),
		read:     readDefinition,
		changed:  s.report,
		refusal:  "CustomResourceDefinitions may not be watched: custom resources are not answered from memory",
		grant:    "list and watch on customresourcedefinitions.apiextensions.k8s.io",
		log:      log,
	}
	return s, nil
}

// run follows the definitions until ctx ends.
func (s *Schemas) run(ctx context.Context) { s.definitions.run(ctx) }

// Ready says whether the definitions are known, or cannot be known: before that a change could go
// unnoticed.
func (s *Schemas) Ready() bool { return s.definitions.ready() }

// Check returns the reason if the definitions forbid to answer a resource from memory now: they are
// not known yet, or a change would not be noticed. Or they and the APIService disagree whether it
// is a custom resource, which is written differently (the APIService was made again, or before the
// definition).
func (s *Schemas) Check(gr schema.GroupResource, entry Entry) reason.Reason {
	_, defined, current := s.definitions.get(gr.String())
	switch {
	case !s.Ready():
		return reason.Warming
	case entry.Custom != defined, entry.Custom && !current:
		return reason.Upstream
	}
	return reason.None
}

// fields returns the fields of a custom resource that a field selector may name.
func (s *Schemas) fields(gvr schema.GroupVersionResource) ([]wire.Field, error) {
	d, defined, current := s.definitions.get(gvr.GroupResource().String())
	if !defined || !current {
		return nil, fmt.Errorf("the CustomResourceDefinition %s is not known now", gvr.GroupResource())
	}
	return d.fields[gvr.Version], nil
}

// report tells of a change. A definition's name is plural.group.
func (s *Schemas) report(c change[definition]) {
	resource, group, _ := strings.Cut(c.name, ".")
	s.changed(schema.GroupResource{Group: group, Resource: resource}, difference(c), c.was != nil && c.was.established)
}

// difference says in words what has changed about a definition.
func difference(c change[definition]) string {
	switch was, is := c.was, c.is; {
	case is == nil:
		return "deleted"
	case was == nil:
		return "made"
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
