package feed

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/listproxy/listproxy/test/harness"
)

// Rule 1: what a list looks like is learned from a real one, and what cannot be reconciled byte
// for byte is not answered from memory.
func TestListsOfAnotherForm(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := newRig(t, shared, rigOptions{})
	ns := r.namespace(t, "a-form") // its objects are the first ones, from which the form is learned
	replace := func(old, with string) func([]byte) []byte {
		return func(body []byte) []byte { return bytes.Replace(body, []byte(old), []byte(with), 1) }
	}
	tests := []struct {
		name   string
		kind   kind
		change func(body []byte) []byte
		proof  bool // only the list with which the loaded state is proved is changed
	}{
		{name: "a space in the frame", kind: limitRanges, change: replace(`"items":[`, `"items": [`)},
		{name: "another order of keys", kind: podTemplates, change: replace(`{"kind":"PodTemplateList","apiVersion":"v1",`, `{"apiVersion":"v1","kind":"PodTemplateList",`)},
		{name: "an unknown member", kind: resourceQuotas, change: replace(`"items":[`, `"more":1,"items":[`)},
		{name: "a space in an item", kind: networkPolicies, change: replace(`"items":[{"metadata":{`, `"items":[{"metadata": {`)},
		{name: "items with a kind", kind: priorityClasses, change: replace(`"items":[{"metadata":{`, `"items":[{"kind":"PriorityClass","metadata":{`)},
		{name: "other items", kind: budgets, proof: true, change: replace(`"items":[{"metadata":{"name":"`, `"items":[{"metadata":{"name":"x`)},
		{name: "another content of a custom resource", kind: widgets, proof: true, change: replace(`"z":1`, `"z":2`)},
		{name: "another count", kind: claims, proof: true, change: replace(`"metadata":{`, `"metadata":{"remainingItemCount":7,`)},
	}
	r.hop.OnBody(func(req *http.Request, body []byte) []byte {
		for _, tt := range tests {
			if of(req, tt.kind) && (!tt.proof || req.URL.Query().Get("resourceVersionMatch") == "Exact") {
				return tt.change(body)
			}
		}
		return body
	})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r.create(t, tt.kind, ns, "a")
			revision := r.create(t, tt.kind, ns, "b")
			r.await(fwdForm, tt.kind.list(""), anyVersion())
			r.expect(fwdForm, tt.kind.list(ns), notOlderThan(revision))
			r.expect(fwdForm, tt.kind.list(""), exactly(revision))
			r.expect(fwdForm, tt.kind.list(ns), firstPage(revision))
			// That and only that: one to load, where the form was learned, and none that goes on from there.
			follows := func(q url.Values) bool { return anyWatch(q) && !q.Has("fieldSelector") }
			if n, late := r.count(tt.kind, follows), len(r.gaveUp(tt.kind)); n > 1+late {
				t.Errorf("the feed opened %d watches of a resource that it cannot keep, and was late %d times", n, late)
			}
		})
	}
}

// Warning headers come with answers from memory too.
func TestWarnings(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared, rigOptions{})
	ns := r.namespace(t, "warnings")
	for _, k := range []kind{endpoints, gadgets} {
		r.create(t, k, ns, "a")
		a := r.await(hitAny, k.list(""), anyVersion())
		if len(a.Header.Values("Warning")) == 0 { // that it is the right one has been compared
			t.Errorf("%s: an answer from memory without a Warning, which the API server sends", k.plural)
		}
	}
}

// An empty collection does not show what its items look like. It is answered all the same, and
// so are the first objects that appear.
func TestEmptyCollections(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared, rigOptions{})
	for _, k := range []kind{runtimeClasses, blanks} {
		empty := r.await(hitAny, k.list(""), anyVersion()).Meta().ResourceVersion
		r.expect(hitExact, k.list(""), exactly(empty))
		// With the first object the state is loaded again, and its own revision may fall into
		// the gap: then it is forwarded.
		first := r.create(t, k, "", "object-0")
		r.await(hitNotOlderThan, k.list(""), notOlderThan(first))
		r.ask(k.list(""), exactly(first))
		for i := 1; i < 3; i++ {
			revision := r.create(t, k, "", fmt.Sprintf("object-%d", i))
			r.await(hitNotOlderThan, k.list(""), notOlderThan(revision))
			r.expect(hitExact, k.list(""), exactly(revision))
			r.expect(hitExact, k.list(""), firstPage(revision))
		}
		for i := range 3 {
			r.remove(t, k, "", fmt.Sprintf("object-%d", i))
		}
		again := r.create(t, k, "", "again")
		r.await(hitNotOlderThan, k.list(""), notOlderThan(again))
		r.expect(hitExact, k.list(""), exactly(empty))
	}
}
