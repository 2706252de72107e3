package discovery

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/listproxy/listproxy/snapshot/wire"
)

func TestSelectableFields(t *testing.T) {
	path := func(p any) any { return map[string]any{"jsonPath": p} }
	definition := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"versions": []any{
		map[string]any{"name": "v1", "selectableFields": []any{
			path(".spec.color"), path(".status.deep.er_x-1"), path(".spec.list[0]"), path(".spec['a']"), path(`.spec.a\.b`), path("spec"), path("."), path(1), "x",
		}},
		map[string]any{"name": "v2", "selectableFields": []any{path(".spec.hue")}},
		map[string]any{"name": "v3"},
		"not a version",
	}}}}
	for version, want := range map[string][]wire.Field{
		"v1": {{Name: "spec.color", JSON: []string{"spec", "color"}}, {Name: "status.deep.er_x-1", JSON: []string{"status", "deep", "er_x-1"}}},
		"v2": {{Name: "spec.hue", JSON: []string{"spec", "hue"}}},
		"v3": nil,
		"v4": nil,
	} {
		if diff := cmp.Diff(want, selectableFields(definition, version)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", version, diff)
		}
	}
	if got := selectableFields(&unstructured.Unstructured{}, "v1"); got != nil {
		t.Errorf("an empty definition: %v", got)
	}
}
