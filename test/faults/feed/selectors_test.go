package feed

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/listproxy/listproxy/test/harness/poll"
)

const fwdSelector = "listproxy; fwd=bypass; detail=selector"

var paints = kind{"paints.feed.test/v1", "Paint", "paints", false, nil}

// selectable is the definition of a kind whose spec has fields that can be selected by.
func (k kind) selectable(types map[string]string) any {
	definition := k.definition().(fieldsOf)
	properties, fields := fieldsOf{}, []any{}
	for name, is := range types {
		properties[name] = fieldsOf{"type": is}
		fields = append(fields, fieldsOf{"jsonPath": ".spec." + name})
	}
	definition["spec"].(fieldsOf)["versions"] = []any{fieldsOf{
		"name": "v1", "served": true, "storage": true, "selectableFields": fields,
		"schema": fieldsOf{"openAPIV3Schema": fieldsOf{"type": "object", "properties": fieldsOf{
			"spec": fieldsOf{"type": "object", "properties": properties},
		}}},
	}}
	return definition
}

// Selectors are answered from memory as the API server answers them: by the fields of built-in
// types, and by those that a CustomResourceDefinition declares. A field that the API server does
// not know is its own to refuse.
func TestSelectors(t *testing.T) {
	t.Parallel()
	shared.write(t, http.MethodPost, definitions, paints.selectable(map[string]string{"color": "string", "layers": "integer", "dry": "boolean"}))
	if err := poll.Retry(t.Context(), "the paints to be served", func() error {
		a, err := shared.direct.Get(t.Context(), paints.list(""))
		if err == nil && a.Code != http.StatusOK {
			err = errors.New(a.String())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, shared, rigOptions{})
	ns := r.namespace(t, "selectors")
	for i, spec := range []fieldsOf{
		{"color": "red", "layers": 2, "dry": true}, {"color": "blue", "layers": 0, "dry": false}, {}, {"color": "red"},
	} {
		k := paints
		k.rest = fieldsOf{"spec": spec}
		r.create(t, k, ns, fmt.Sprintf("object-%d", i))
		k = pods
		k.rest = fieldsOf{"spec": fieldsOf{"nodeName": fmt.Sprintf("node-%d", i%2), "containers": podSpec["containers"]}}
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
			r.fromMemory(t, accept, tt.kind.list("")+"?resourceVersion=0")
			revision := r.touch(t, tt.kind, ns, "object-0", accept)
			for _, selector := range tt.selectors {
				q := exactly(revision)
				q.Set("fieldSelector", selector)
				r.same(t, accept, tt.kind.list(ns), q)
				r.same(t, accept, tt.kind.list(""), q)
				q.Set("limit", "1")
				r.same(t, accept, tt.kind.list(ns), q)
			}
		}
		for _, unknown := range []string{"spec.unknown=x", "metadata.name=a,spec.unknown=x"} {
			q := anyVersion()
			q.Set("fieldSelector", unknown)
			r.expect(fwdSelector, tt.kind.list(ns), q)
		}
	}
}
