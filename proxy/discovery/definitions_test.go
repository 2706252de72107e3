package discovery

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		`"resourceVersion":"1","generation":%d%s},"spec":{"group":"x.io","versions":[{"name":"v%d","served":true},{"name":"v1","served":false}]},`+
		`"status":{%s}}`, generation, metadata, (generation+1)/2, status)
}

const (
	established = `"acceptedNames":{"plural":"a","kind":"A"},"conditions":[{"type":"Established","status":"True"}]`
	renamed     = `"acceptedNames":{"plural":"a","kind":"B"},"conditions":[{"type":"Established","status":"True"}]`
)

// runSchemas runs Schemas in the bubble, on an API server with one definition, if it is not empty.
func runSchemas(t *testing.T, f *proxytest.FakeAPI, definition string) (*Schemas, *told) {
	t.Helper()
	c := &proxytest.FakeCollection{Kind: "CustomResourceDefinitionList", APIVersion: "apiextensions.k8s.io/v1"}
	if definition != "" {
		c.Objects = []string{definition}
	}
	f.Collections[definitionsPath] = c
	h := &told{}
	s, err := newSchemas(f.Config(), func(of schema.GroupResource, what string, served bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.what = append(h.what, fmt.Sprintf("%s served %v: %s", of, served, what))
	}, proxytest.DiscardLog())
	expect.NoError(t, err)
	proxytest.RunInBubble(t, s.run)
	return s, h
}

// TestDefinitionsThatChange: only what changes answers counts.
func TestDefinitionsThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxytest.NewFakeAPI()
		_, told := runSchemas(t, f, crd(1, "", established))
		told.take() // the first list
		for _, step := range []struct {
			name, event, object string
			want                []string
		}{
			{"an annotation", "MODIFIED", crd(1, `,"annotations":{"a":"b"}`, established), nil},
			{"a label and a finalizer", "MODIFIED", crd(1, `,"labels":{"a":"b"},"finalizers":["f"]`, established), nil},
			{"a condition, stored versions", "MODIFIED", crd(1, "", established+`,"storedVersions":["v1","v2"]`), nil},
			{"the spec", "MODIFIED", crd(2, "", established), []string{"a.x.io served true: generation 1 to 2"}},
			{"served versions", "MODIFIED", crd(3, "", established), []string{"a.x.io served true: generation 2 to 3"}},
			{"names", "MODIFIED", crd(3, "", renamed), []string{"a.x.io served true: accepted names, or whether it is established"}},
			{"it goes", "DELETED", crd(3, "", renamed), []string{"a.x.io served true: deleted"}},
			{"it comes", "ADDED", crd(1, "", ""), []string{"a.x.io served false: made"}},
			{"it is served", "MODIFIED", crd(1, "", established), []string{"a.x.io served false: accepted names, or whether it is established"}},
			{"another one", "MODIFIED", crd(1, `,"uid":"2"`, established), []string{"a.x.io served true: deleted and made again"}},
		} {
			f.Event(definitionsPath, step.event, step.object)
			if diff := cmp.Diff(step.want, told.take()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step.name, diff)
			}
		}
	})
}

// TestSchemasCheck: custom resources are answered while a change of their definition would be heard of,
// and what the APIServices say about the kind of a resource is held against the definitions.
func TestSchemasCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxytest.NewFakeAPI()
		f.Answer(500, "list "+definitionsPath)
		s, _ := runSchemas(t, f, crd(1, "", established))
		defined, undefined := schema.GroupResource{Group: "x.io", Resource: "a"}, schema.GroupResource{Resource: "pods"}
		builtin, custom := Entry{}, Entry{Custom: true}
		check := func(when string, gr schema.GroupResource, of Entry, want reason.Reason) {
			t.Helper()
			synctest.Wait()
			if got := s.Check(gr, of); got != want {
				t.Errorf("%s: %s %+v: %q, want %q", when, gr, of, got, want)
			}
		}
		check("before the first list", defined, custom, reason.Warming)
		check("before the first list", undefined, builtin, reason.Warming)
		f.Answer(0, "list "+definitionsPath)
		time.Sleep(time.Minute)
		check("listed", defined, custom, reason.None)
		check("listed", defined, builtin, reason.Upstream)
		check("listed", undefined, builtin, reason.None)
		check("listed", undefined, custom, reason.Upstream)
		f.Answer(403, "list "+definitionsPath, "watch "+definitionsPath)
		f.Cut(definitionsPath)
		time.Sleep(snapshot.Skew)
		check("no stream for a moment", defined, custom, reason.None)
		time.Sleep(time.Second)
		check("no stream", defined, custom, reason.Upstream)
		check("no stream", undefined, builtin, reason.None)
	})
}

// TestSchemasRefused: where definitions may not be read, nobody waits for them.
func TestSchemasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxytest.NewFakeAPI()
		f.Answer(403, "list "+definitionsPath)
		s, _ := runSchemas(t, f, "")
		pods := schema.GroupResource{Resource: "pods"}
		if builtin, custom := s.Check(pods, Entry{}), s.Check(pods, Entry{Custom: true}); !s.Ready() || builtin != "" || custom != reason.Upstream {
			t.Errorf("ready %v, built-in %q, custom %q", s.Ready(), builtin, custom)
		}
	})
}

func TestSelectableFields(t *testing.T) {
	version := func(name string, served bool, paths ...string) apiextensionsv1.CustomResourceDefinitionVersion {
		v := apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: served}
		for _, path := range paths {
			v.SelectableFields = append(v.SelectableFields, apiextensionsv1.SelectableField{JSONPath: path})
		}
		return v
	}
	is, err := readDefinition(&apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			version("v1", true, ".spec.color", ".status.deep.er_x-1", ".spec.list[0]", ".spec['a']", `.spec.a\.b`, "spec", "."),
			version("v2", false, ".spec.hue"),
			version("v3", true),
		},
	}})
	expect.NoError(t, err)
	want := map[string][]wire.Field{
		"v1": {{Name: "spec.color", JSON: []string{"spec", "color"}}, {Name: "status.deep.er_x-1", JSON: []string{"status", "deep", "er_x-1"}}},
		"v3": nil,
	}
	if diff := cmp.Diff(want, is.fields); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := readDefinition(&metav1.PartialObjectMetadata{}); err == nil {
		t.Error("an object of another type is taken for a definition")
	}
}

// TestFieldsOfADefinition: as it is known, while a change would be heard of.
func TestFieldsOfADefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxytest.NewFakeAPI()
		s, _ := runSchemas(t, f, crd(1, "", established))
		gvr := schema.GroupVersionResource{Group: "x.io", Version: "v1", Resource: "a"}
		if fields, err := s.fields(gvr); err != nil || fields != nil {
			t.Errorf("%v, %v", fields, err)
		}
		if _, err := s.fields(schema.GroupVersionResource{Group: "x.io", Version: "v1", Resource: "b"}); err == nil {
			t.Error("fields of what is not defined")
		}
		f.Refuse(true)
		f.Cut(definitionsPath)
		time.Sleep(snapshot.Skew + time.Second)
		if _, err := s.fields(gvr); err == nil {
			t.Error("fields of a definition that may have changed")
		}
	})
}

// TestClusterDropsWhatWasServed: a definition of a resource that was not served before ends nothing.
func TestClusterDropsWhatWasServed(t *testing.T) {
	var mu sync.Mutex
	var got []snapshot.Invalidation
	c := &Cluster{Catalog: &Catalog{}, config: Config{Log: proxytest.DiscardLog(), Invalidate: func(i snapshot.Invalidation) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, i)
	}}}
	of := schema.GroupResource{Group: "x.io", Resource: "a"}
	c.redefined(of, "made", false)
	c.redefined(of, "deleted", true)
	if len(got) != 1 || got[0].Cause != snapshot.Definition || got[0].Scope != snapshot.OfResource(of) || got[0].What != "deleted" ||
		got[0].Until != snapshot.For(snapshot.Skew) {
		t.Errorf("%+v", got)
	}
}
