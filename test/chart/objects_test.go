package chart

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
)

// foreign are kinds of others, which are only read as they stand.
var foreign = map[string]bool{"Certificate": true, "ServiceMonitor": true, "PrometheusRule": true}

// objects reads what Helm rendered as Kubernetes does where it is strict: a field that is not
// there, or is given twice, fails the test.
func objects(t *testing.T, rendered string) []runtime.Object {
	t.Helper()
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	var all []runtime.Object
	for document := range strings.SplitSeq("\n"+rendered, "\n---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		var kind struct {
			Kind string `yaml:"kind"`
		}
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		if kind.Kind == "" || foreign[kind.Kind] { // none: only comments
			continue
		}
		object, _, err := strict.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		all = append(all, object)
	}
	return all
}

// one returns the only object of a type, of those that are wanted.
func one[T runtime.Object](t *testing.T, all []runtime.Object, wanted func(T) bool) T {
	t.Helper()
	var found []T
	for _, object := range all {
		if o, ok := object.(T); ok && (wanted == nil || wanted(o)) {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T, not one", len(found), *new(T))
	}
	return found[0]
}
