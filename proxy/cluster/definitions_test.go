package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
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

// crd describes a definition of the custom resource a.x.io.
type crd struct {
	generation int
	served     string // the only version that is served; "": v1
	scope      string // "": Namespaced
	metadata   string // more members of the metadata in JSON, each with a comma behind it; a "uid" replaces the usual one
	status     string // the members of the status in JSON
}

// object returns the CustomResourceDefinition.
func (d crd) object() inmemory.Object {
	return inmemory.Object{
		Name: "a.x.io", MoreMeta: fmt.Sprintf(`"uid":"1","generation":%d,%s`, d.generation, d.metadata),
		More: fmt.Sprintf(`,"spec":{"group":"x.io","scope":%q,"versions":[{"name":%q,"served":true},{"name":"v1","served":false}]},"status":{%s}`,
			cmp.Or(d.scope, "Namespaced"), cmp.Or(d.served, "v1"), d.status),
	}
}

// Members of the status of a definition.
const (
	established = `"acceptedNames":{"plural":"a","kind":"A"},"conditions":[{"type":"Established","status":"True"}]`
	renamed     = `"acceptedNames":{"plural":"a","kind":"B"},"conditions":[{"type":"Established","status":"True"}]`
)

// newFakeClusterWith returns a newFakeCluster that also serves the custom resource a.x.io with this definition.
func newFakeClusterWith(t *testing.T, definition crd) *inmemory.Hop {
	t.Helper()
	upstream := newFakeCluster(t)
	upstream.Put(inmemory.APIServices, inmemory.APIService("v1", "x.io", ""))
	upstream.Put(inmemory.Definitions, definition.object())
	return upstream
}

// TestDefinitionsThatChange: a change of a definition invalidates the resource if it may change answers about the resource's
// objects. No other change does.
func TestDefinitionsThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := newFakeClusterWith(t, crd{generation: 1, status: established})
		recorded := &recorder{}
		runCluster(t, upstream, Config{Invalidate: recorded.recordInvalidation})
		for _, step := range []struct {
			name             string
			event            watch.EventType // default: writeEvent
			definition       crd
			wantInvalidation bool
		}{
			{name: "an annotation", definition: crd{generation: 1, metadata: `"annotations":{"a":"b"},`, status: established}},
			{name: "a label and a finalizer", definition: crd{generation: 1, metadata: `"labels":{"a":"b"},"finalizers":["f"],`, status: established}},
			{name: "a condition, stored versions", definition: crd{generation: 1, status: established + `,"storedVersions":["v1","v2"]`}},
			{name: "the spec", definition: crd{generation: 2, status: established}, wantInvalidation: true},
			{name: "served versions", definition: crd{generation: 3, served: "v2", status: established}, wantInvalidation: true},
			{name: "the accepted names", definition: crd{generation: 3, served: "v2", status: renamed}, wantInvalidation: true},
			{name: "the definition is deleted", event: watch.Deleted, definition: crd{generation: 3, served: "v2", status: renamed}, wantInvalidation: true},
			{name: "it is created again, not established", definition: crd{generation: 1}},
			{name: "it becomes established", definition: crd{generation: 1, status: established}},
			{name: "it is replaced (another UID)", definition: crd{generation: 1, metadata: `"uid":"2",`, status: established}, wantInvalidation: true},
		} {
			sendEvent(upstream, inmemory.Definitions, step.event, step.definition.object())
			var want []string
			if step.wantInvalidation {
				want = append(want, fmt.Sprint(reason.Schema, resourceScope("x.io", "a")))
			}
			recorded.expect(t, step.name, want...)
		}
	})
}

// TestCustomResources: a custom resource is found, and its fields are known, only while the watch of definitions runs, and for
// ten seconds (snapshot.Skew) after it. A built-in resource that also has a definition is not found.
func TestCustomResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := newFakeClusterWith(t, crd{generation: 1, status: established})
		upstream.Put(inmemory.Definitions, inmemory.Object{Name: "deployments.apps"})
		lists, watches := "list "+inmemory.Definitions.Path, "watch "+inmemory.Definitions.Path
		upstream.SetStatus(http.StatusInternalServerError, lists)
		c := runCluster(t, upstream, Config{})
		for _, step := range []struct {
			name                    string
			do                      func()
			wantReady               bool             // DefinitionsReady
			wantCustom, wantBuiltin found            // the results of Lookup for a.x.io and for pods
			wantFields              bool             // Fields knows the fields of a.x.io
			wantOthers              map[string]found // more results of Lookup, by resource
		}{
			{
				name: "before the first list", do: func() {},
				wantCustom: notFound(reason.Warming), wantBuiltin: notFound(reason.Warming),
			},
			{
				name: "the list is refused: nobody waits for it", do: func() {
					upstream.SetStatus(http.StatusForbidden, lists)
					time.Sleep(time.Minute)
				},
				wantReady: true, wantCustom: notFound(reason.Upstream), wantBuiltin: foundNamespaced,
			},
			{
				name: "listed", do: func() {
					upstream.SetStatus(usualAnswers, lists)
					time.Sleep(2 * maxRefusedPause)
				},
				wantReady: true, wantCustom: foundCustom, wantBuiltin: foundNamespaced, wantFields: true,
				wantOthers: map[string]found{
					"apps v1 deployments": notFound(reason.Upstream), // built in, and defined
					"x.io v1 b":           notFound(reason.UnknownResource),
				},
			},
			{
				name: "no watch for as long as snapshot.Skew", do: func() {
					upstream.SetStatus(http.StatusForbidden, lists, watches)
					upstream.Cut(inmemory.Definitions.Path)
					time.Sleep(snapshot.Skew)
				},
				wantReady: true, wantCustom: foundCustom, wantBuiltin: foundNamespaced, wantFields: true,
			},
			{
				name: "no watch for longer", do: func() { time.Sleep(time.Second) },
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
		upstream := newFakeClusterWith(t, crd{generation: 1}) // not established
		c := runCluster(t, upstream, Config{})
		expectLookup(t, c, "x.io v1 a", notFound(reason.UnknownResource))
		upstream.Put(inmemory.Definitions, crd{generation: 1, status: established}.object())
		expectLookup(t, c, "x.io v1 a", foundCustom)
		upstream.Put(inmemory.Definitions, crd{generation: 2, scope: "Cluster", metadata: `"uid":"2",`, status: established}.object())
		expectLookup(t, c, "x.io v1 a", found{Entry: Entry{Namespaced: false, Custom: true}})
		upstream.Put(inmemory.Definitions, crd{generation: 3, served: "v2", status: established}.object())
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
	expect.Same(t, want, readDefinition(&o).fieldsByVersion)
}
