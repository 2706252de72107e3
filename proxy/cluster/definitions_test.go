package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// crd is a definition of a.x.io, of a generation, with a part of its metadata and status.
func crd(generation int, metadata, status string) string {
	return fmt.Sprintf(`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"a.x.io","uid":"1",`+
		`"resourceVersion":"1","generation":%d%s},"spec":{"group":"x.io","scope":"Namespaced","versions":[{"name":"v%d","served":true},{"name":"v1","served":false}]},`+
		`"status":{%s}}`, generation, metadata, (generation+1)/2, status)
}

const (
	established = `"acceptedNames":{"plural":"a","kind":"A"},"conditions":[{"type":"Established","status":"True"}]`
	renamed     = `"acceptedNames":{"plural":"a","kind":"B"},"conditions":[{"type":"Established","status":"True"}]`
)

// withDefinition is an API server whose only custom resource is a.x.io.
func withDefinition(t *testing.T, definition string) *proxytest.FakeAPI {
	t.Helper()
	f := newFakeCluster(t)
	route := strings.Replace(proxytest.APIService("v1", "x.io", "", 1), `"onstart"`, `"true"`, 1)
	f.Collections[apiServicesPath].Objects = append(f.Collections[apiServicesPath].Objects, route)
	f.Collections[definitionsPath].Objects = []string{definition}
	return f
}

// TestDefinitionsThatChange: only what changes answers counts.
func TestDefinitionsThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, told := withDefinition(t, crd(1, "", established)), &told{}
		runCluster(t, f, told.invalidate)
		for _, step := range []struct {
			name, event, object string
			want                string
		}{
			{name: "an annotation", event: "MODIFIED", object: crd(1, `,"annotations":{"a":"b"}`, established)},
			{name: "a label and a finalizer", event: "MODIFIED", object: crd(1, `,"labels":{"a":"b"},"finalizers":["f"]`, established)},
			{name: "a condition, stored versions", event: "MODIFIED", object: crd(1, "", established+`,"storedVersions":["v1","v2"]`)},
			{name: "the spec", event: "MODIFIED", object: crd(2, "", established), want: "generation 1 to 2"},
			{name: "served versions", event: "MODIFIED", object: crd(3, "", established), want: "generation 2 to 3"},
			{name: "names", event: "MODIFIED", object: crd(3, "", renamed), want: "generation 3 to 3"},
			{name: "it goes", event: "DELETED", object: crd(3, "", renamed), want: "deleted"},
			{name: "it comes", event: "ADDED", object: crd(1, "", "")},
			{name: "it is served", event: "MODIFIED", object: crd(1, "", established)},
			{name: "another one", event: "MODIFIED", object: crd(1, `,"uid":"2"`, established), want: "generation 1 to 1"},
		} {
			f.Event(definitionsPath, step.event, step.object)
			var want []string
			if step.want != "" {
				want = append(want, invalidated(snapshot.Invalidation{
					Cause: snapshot.CauseDefinition, Scope: snapshot.OfResource(schema.GroupResource{Group: "x.io", Resource: "a"}),
					What: step.want,
				}))
			}
			told.expect(t, step.name, want...)
		}
	})
}

// TestCustomResources are answered while a change of their definition would be heard of, and only then are their
// fields known. What the APIServices say about the kind of a resource is held against the definitions.
func TestCustomResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := withDefinition(t, crd(1, "", established))
		f.Collections[definitionsPath].Objects = append(f.Collections[definitionsPath].Objects,
			strings.Replace(proxytest.Definition("deployments", "Namespaced", 1, 1), "deployments.example.com", "deployments.apps", 1))
		f.SetStatus(500, "list "+definitionsPath)
		c := runLookups(t, f)
		lookup := func(when string, ready bool, custom, builtin found) {
			t.Helper()
			expectLookup(t, c, "x.io v1 a", custom)
			expectLookup(t, c, " v1 pods", builtin)
			_, err := c.Fields(t.Context(), schema.GroupVersionResource{Group: "x.io", Version: "v1", Resource: "a"})
			if c.DefinitionsReady() != ready || (err == nil) != (custom == foundWidgets) {
				t.Errorf("%s: ready %t, fields: %v", when, c.DefinitionsReady(), err)
			}
			if t.Failed() {
				t.Fatal(when)
			}
		}
		lookup("before the first list", false, forwardedAs(reason.Warming), forwardedAs(reason.Warming))
		f.SetStatus(403, "list "+definitionsPath) // nobody waits for what may not be read
		time.Sleep(time.Minute)
		lookup("refused", true, forwardedAs(reason.Upstream), foundPods)
		f.SetStatus(0, "list "+definitionsPath)
		time.Sleep(2 * maxRefusedPause)
		lookup("listed", true, foundWidgets, foundPods)
		expectLookup(t, c, "apps v1 deployments", forwardedAs(reason.Upstream)) // built in, and defined
		expectLookup(t, c, "x.io v1 b", forwardedAs(reason.UnknownResource))
		f.SetStatus(403, "list "+definitionsPath, "watch "+definitionsPath)
		f.Cut(definitionsPath)
		time.Sleep(snapshot.Skew)
		lookup("no stream for a moment", true, foundWidgets, foundPods)
		time.Sleep(time.Second)
		lookup("no stream", true, forwardedAs(reason.Upstream), foundPods)
	})
}

// TestUnusualDefinitions: what is not established, or not served in a version, is not there.
func TestUnusualDefinitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := withDefinition(t, crd(1, "", ""))
		c := runLookups(t, f)
		expectLookup(t, c, "x.io v1 a", forwardedAs(reason.UnknownResource))
		f.Event(definitionsPath, "MODIFIED", crd(1, "", established))
		expectLookup(t, c, "x.io v1 a", foundWidgets)
		f.Event(definitionsPath, "MODIFIED", strings.Replace(crd(2, `,"uid":"2"`, established), "Namespaced", "Cluster", 1))
		expectLookup(t, c, "x.io v1 a", found{Entry: Entry{Custom: true}})
		f.Event(definitionsPath, "MODIFIED", crd(3, "", established)) // v2 in place of v1
		expectLookup(t, c, "x.io v1 a", forwardedAs(reason.UnknownResource))
	})
}

// TestSelectableFields: of a definition's selectable fields those with a plain path can be selected by, in served
// versions.
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
	expect.Same(t, want, readDefinition(&o).served)
}
