package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
)

// crd returns the definition of the custom resource a.x.io, which serves one version. The metadata and status are JSON members.
func crd(generation int, served, metadata, status string) inmemory.Object {
	return inmemory.Object{
		Name: "a.x.io", MoreMeta: fmt.Sprintf(`"uid":"1","generation":%d,%s`, generation, metadata),
		More: fmt.Sprintf(`,"spec":{"group":"x.io","scope":"Namespaced",`+
			`"versions":[{"name":%q,"served":true},{"name":"v1","served":false}]},"status":{%s}`, served, status),
	}
}

const (
	established = `"acceptedNames":{"plural":"a","kind":"A"},"conditions":[{"type":"Established","status":"True"}]`
	renamed     = `"acceptedNames":{"plural":"a","kind":"B"},"conditions":[{"type":"Established","status":"True"}]`
)

// newFakeClusterWith is newFakeCluster with the custom resource a.x.io, which has this definition.
func newFakeClusterWith(t *testing.T, definition inmemory.Object) *inmemory.Hop {
	t.Helper()
	f := newFakeCluster(t)
	f.Put(inmemory.APIServices, inmemory.APIService("v1", "x.io", ""))
	f.Put(inmemory.Definitions, definition)
	return f
}

// TestDefinitionsThatChange: a definition's change that may change answers invalidates the resource, and no other change does.
func TestDefinitionsThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeClusterWith(t, crd(1, "v1", "", established))
		recorded := &recorder{}
		runCluster(t, f, Config{Invalidate: recorded.recordInvalidation})
		for _, step := range []struct {
			name             string
			event            watch.EventType // "": the event of a write
			object           inmemory.Object
			wantInvalidation bool
		}{
			{name: "an annotation", object: crd(1, "v1", `"annotations":{"a":"b"},`, established)},
			{name: "a label and a finalizer", object: crd(1, "v1", `"labels":{"a":"b"},"finalizers":["f"],`, established)},
			{name: "a condition, stored versions", object: crd(1, "v1", "", established+`,"storedVersions":["v1","v2"]`)},
			{name: "the spec", object: crd(2, "v1", "", established), wantInvalidation: true},
			{name: "served versions", object: crd(3, "v2", "", established), wantInvalidation: true},
			{name: "the accepted names", object: crd(3, "v2", "", renamed), wantInvalidation: true},
			{name: "the definition is deleted", event: watch.Deleted, object: crd(3, "v2", "", renamed), wantInvalidation: true},
			{name: "it is created, not established", object: crd(1, "v1", "", "")},
			{name: "it becomes established", object: crd(1, "v1", "", established)},
			{name: "it is replaced (another UID)", object: crd(1, "v1", `"uid":"2",`, established), wantInvalidation: true},
		} {
			sendEvent(f, inmemory.Definitions, step.event, step.object)
			var want []string
			if step.wantInvalidation {
				want = append(want, fmt.Sprint(reason.Schema, ofResource("x.io", "a")))
			}
			recorded.expect(t, step.name, want...)
		}
	})
}

// TestCustomResources: a custom resource is found, and its fields are known, only while the watch of definitions runs, and for
// snapshot.Skew after it. A built-in resource that also has a definition is not found.
func TestCustomResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeClusterWith(t, crd(1, "v1", "", established))
		f.Put(inmemory.Definitions, inmemory.Object{Name: "deployments.apps"})
		list, watch := "list "+inmemory.Definitions.Path, "watch "+inmemory.Definitions.Path
		f.SetStatus(http.StatusInternalServerError, list)
		c := runCluster(t, f, Config{})
		for _, step := range []struct {
			name                    string
			do                      func()
			wantReady               bool
			wantCustom, wantBuiltin found
			wantFields              bool // the fields of the custom resource are known
			wantOthers              map[string]found
		}{
			{
				name: "before the first list", do: func() {},
				wantCustom: notFound(reason.Warming), wantBuiltin: notFound(reason.Warming),
			},
			{
				name: "the list is refused: nobody waits for it", do: func() {
					f.SetStatus(http.StatusForbidden, list)
					time.Sleep(time.Minute)
				},
				wantReady: true, wantCustom: notFound(reason.Upstream), wantBuiltin: foundNamespaced,
			},
			{
				name: "listed", do: func() {
					f.SetStatus(usualAnswers, list)
					time.Sleep(2 * maxRefusedPause)
				},
				wantReady: true, wantCustom: foundCustom, wantBuiltin: foundNamespaced, wantFields: true,
				wantOthers: map[string]found{
					"apps v1 deployments": notFound(reason.Upstream), // built in, and defined
					"x.io v1 b":           notFound(reason.UnknownResource),
				},
			},
			{
				name: "no watch for a moment", do: func() {
					f.SetStatus(http.StatusForbidden, list, watch)
					f.Cut(inmemory.Definitions.Path)
					time.Sleep(snapshot.Skew)
				},
				wantReady: true, wantCustom: foundCustom, wantBuiltin: foundNamespaced, wantFields: true,
			},
			{
				name: "no watch", do: func() { time.Sleep(time.Second) },
				wantReady: true, wantCustom: notFound(reason.Upstream), wantBuiltin: foundNamespaced,
			},
		} {
			step.do()
			expectLookup(t, c, "x.io v1 a", step.wantCustom)
			expectLookup(t, c, "core v1 pods", step.wantBuiltin)
			if got := c.DefinitionsReady(); got != step.wantReady {
				t.Errorf("%s: ready %t, want %t", step.name, got, step.wantReady)
			}
			_, err := c.Fields(t.Context(), schema.GroupVersionResource{Group: "x.io", Version: "v1", Resource: "a"})
			if (err == nil) != step.wantFields {
				t.Errorf("%s: the fields are read with error %v, want fields: %t", step.name, err, step.wantFields)
			}
			for resource, want := range step.wantOthers {
				expectLookup(t, c, resource, want)
			}
			if t.Failed() {
				t.Fatal(step.name)
			}
		}
	})
}

// TestUnusualDefinitions: a resource is not found while its definition is not established, or in a version that is not served.
// A resource has the scope that its definition gives.
func TestUnusualDefinitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeClusterWith(t, crd(1, "v1", "", ""))
		c := runCluster(t, f, Config{})
		expectLookup(t, c, "x.io v1 a", notFound(reason.UnknownResource))
		f.Put(inmemory.Definitions, crd(1, "v1", "", established))
		expectLookup(t, c, "x.io v1 a", foundCustom)
		clusterScoped := crd(2, "v1", `"uid":"2",`, established)
		clusterScoped.More = strings.Replace(clusterScoped.More, "Namespaced", "Cluster", 1)
		f.Put(inmemory.Definitions, clusterScoped)
		expectLookup(t, c, "x.io v1 a", found{Entry: Entry{Custom: true}})
		f.Put(inmemory.Definitions, crd(3, "v2", "", established))
		expectLookup(t, c, "x.io v1 a", notFound(reason.UnknownResource))
	})
}

// TestSelectableFields: a field selector may name the selectable fields of a served version whose JSON path is plain names.
func TestSelectableFields(t *testing.T) {
	var o object
	expect.NoError(t, json.Unmarshal([]byte(`{"spec":{"versions":[
		{"name":"v1","served":true,"selectableFields":[{"jsonPath":".spec.color"},{"jsonPath":".status.deep.er_x-1"},{"jsonPath":".spec.list[0]"},
			{"jsonPath":".spec['a']"},{"jsonPath":".spec.a\\.b"},{"jsonPath":"spec"},{"jsonPath":"."}]},
		{"name":"v2","served":false,"selectableFields":[{"jsonPath":".spec.hue"}]},
		{"name":"v3","served":true}]}}`), &o))
	want := map[string][]wire.Field{
		"v1": {{Name: "spec.color", JSON: []string{"spec", "color"}}, {Name: "status.deep.er_x-1", JSON: []string{"status", "deep", "er_x-1"}}},
		"v3": nil,
	}
	expect.Same(t, want, readDefinition(&o).fields)
}
