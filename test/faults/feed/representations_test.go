package feed

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	metadataOf   = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// Every kind in every representation that it has, empty and not, whole and in pages, is written
// as the API server writes it, and so are those that came by a watch.
func TestRepresentations(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := newRig(t, shared, rigOptions{})
	ns := r.namespace(t, "representations")
	kinds := []kind{
		configMaps, pods, endpoints, limitRanges, podTemplates, resourceQuotas, claims, controllers,
		deployments, daemonSets, replicaSets, statefulSets, revisions, networkPolicies, budgets,
		endpointSlices, priorityClasses, widgets, gadgets,
	}
	for _, k := range kinds {
		t.Run(k.Plural, func(t *testing.T) {
			for i := range 3 {
				r.create(t, k, ns, fmt.Sprintf("representation-%d", i))
			}
			for _, accept := range []string{
				"application/json", protobufType + ",application/json",
				"application/json" + metadataOf, protobufType + metadataOf,
			} {
				r.fromMemory(t, accept, k.Path("")+"?resourceVersion=0")
				r.sameIn(t, accept, k, ns, r.touch(t, k, ns, "representation-1", "first "+accept))
				r.sameIn(t, accept, k, ns, r.touch(t, k, ns, "representation-1", "second "+accept))
			}
		})
	}
}

// fromMemory asks until listproxy answers from memory.
func (r *rig) fromMemory(t *testing.T, accept, path string) (got ask.Answer) {
	t.Helper()
	r.until(path+" from memory", func() (err error) {
		if got, err = r.admin.GetAs(t.Context(), accept, path); err == nil && !strings.Contains(got.Source(), "hit") {
			err = fmt.Errorf("%d %s", got.Code, got.Source())
		}
		return err
	})
	return got
}

// sameIn asks for lists at a revision until they are answered from memory, and compares them.
func (r *rig) sameIn(t *testing.T, accept string, k kind, namespace, revision string) {
	t.Helper()
	for _, q := range []url.Values{
		exactly(revision),
		firstPage(revision),
		query("resourceVersion="+revision, "resourceVersionMatch=Exact", "labelSelector=none"),
	} {
		r.same(t, accept, k.Path(namespace), q)
	}
}

// same asks for a list until it is answered from memory, and holds it against the API server's.
func (r *rig) same(t *testing.T, accept, list string, q url.Values) {
	t.Helper()
	path := list + "?" + q.Encode()
	got := r.fromMemory(t, accept, path)
	want, err := r.direct.GetAs(t.Context(), accept, path)
	expect.NoError(t, err)
	if !bytes.Equal(got.Body, want.Body) || want.Code != http.StatusOK {
		t.Errorf("%s as %s: listproxy and the API server differ\n got: %q\nwant: %d %q", path, accept, got.Body, want.Code, want.Body)
	}
	for _, name := range []string{"Content-Type", "Warning", "Cache-Control"} {
		if fmt.Sprint(got.Header.Values(name)) != fmt.Sprint(want.Header.Values(name)) {
			t.Errorf("%s as %s: %s is %q, and %q directly", path, accept, name, got.Header.Values(name), want.Header.Values(name))
		}
	}
}

const fwdSelector = "listproxy; fwd=bypass; detail=not-canonical"

var paints = namespaced("paints.feed.test/v1", "Paint", "paints", "")

// selectable is a version of a kind whose spec has fields that can be selected by.
func selectable(types map[string]string) fieldsOf {
	properties, fields := fieldsOf{}, []any{}
	for name, is := range types {
		properties[name] = fieldsOf{"type": is}
		fields = append(fields, fieldsOf{"jsonPath": ".spec." + name})
	}
	version := kinds.Version(fieldsOf{"type": "object", "properties": fieldsOf{"spec": fieldsOf{"type": "object", "properties": properties}}})
	version["selectableFields"] = fields
	return version
}

// Selectors are answered from memory as the API server answers them: by the fields of built-in
// types, and by those that a CustomResourceDefinition declares. A field that the API server does
// not know is its own to refuse.
func TestSelectors(t *testing.T) {
	t.Parallel()
	shared.define(t, paints, selectable(map[string]string{"color": "string", "layers": "integer", "dry": "boolean"}))
	r := newRig(t, shared, rigOptions{})
	ns := r.namespace(t, "selectors")
	for i, spec := range []string{`{"color":"red","layers":2,"dry":true}`, `{"color":"blue","layers":0,"dry":false}`, `{}`, `{"color":"red"}`} {
		k := paints
		k.Rest = `{"spec":` + spec + `}`
		r.create(t, k, ns, fmt.Sprintf("object-%d", i))
		k = pods
		k.Rest = fmt.Sprintf(`{"spec":{"nodeName":"node-%d","containers":[{"name":"main","image":"example.com/main:1"}]}}`, i%2)
		r.create(t, k, ns, fmt.Sprintf("object-%d", i))
	}
	for _, tt := range []struct {
		kind      kind
		selectors []string
	}{
		{paints, []string{
			"spec.color=red", "spec.color=", "spec.color!=red", "spec.layers=2", "spec.layers=0", "spec.dry=true",
			"spec.dry!=true,spec.color=blue", "metadata.name=object-1", "metadata.namespace=" + ns,
		}},
		{pods, []string{
			"spec.nodeName=node-1", "spec.nodeName!=node-1", "spec.host=node-0", "status.phase=Pending", "metadata.name=object-3",
			"spec.hostNetwork=false", "spec.nodeName=node-0,metadata.name!=object-0", "metadata.namespace!=" + ns,
		}},
	} {
		for _, accept := range []string{"application/json", protobufType + ",application/json"} {
			r.fromMemory(t, accept, tt.kind.Path("")+"?resourceVersion=0")
			revision := r.touch(t, tt.kind, ns, "object-0", accept)
			for _, selector := range tt.selectors {
				q := exactly(revision)
				q.Set("fieldSelector", selector)
				r.same(t, accept, tt.kind.Path(ns), q)
				r.same(t, accept, tt.kind.Path(""), q)
				q.Set("limit", "1")
				r.same(t, accept, tt.kind.Path(ns), q)
			}
		}
		for _, unknown := range []string{"spec.unknown=x", "metadata.name=a,spec.unknown=x"} {
			q := anyVersion()
			q.Set("fieldSelector", unknown)
			r.expect(fwdSelector, tt.kind.Path(ns), q)
		}
	}
}
