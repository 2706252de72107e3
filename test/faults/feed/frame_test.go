package feed

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
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
			r.await(fwdForm, tt.kind.Path(""), anyVersion())
			r.expect(fwdForm, tt.kind.Path(ns), notOlderThan(revision))
			r.expect(fwdForm, tt.kind.Path(""), exactly(revision))
			r.expect(fwdForm, tt.kind.Path(ns), firstPage(revision))
			// That and only that: one to load, where the form was learned, and none that goes on
			// from there.
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
		a := r.await(hitAny, k.Path(""), anyVersion())
		if len(a.Header.Values("Warning")) == 0 { // that it is the right one has been compared
			t.Errorf("%s: an answer from memory without a Warning, which the API server sends", k.Plural)
		}
	}
}

var roles = namespaced("rbac.authorization.k8s.io/v1", "Role", "roles", `{"rules":[]}`)

// Rule 1: names of RBAC objects are path segments and nothing more, so they can hold bytes that
// are not UTF-8. JSON has U+FFFD for those: what a list says of such an object is neither its
// name nor its place in the order. As long as there is one, nothing is answered from memory.
func TestNamesThatAreNotUTF8(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	const bad, high = "\xffb", "\U00010000a"
	k := roles
	r := newRig(t, shared, rigOptions{})
	ns := r.namespace(t, "names")
	list := k.Path(ns)
	for _, name := range []string{"z", high} { // U+10000 sorts before U+FFFD in UTF-16, not in UTF-8
		r.create(t, k, ns, name)
	}
	r.await(hitAny, list, anyVersion())
	known := r.create(t, k, ns, "\uffeea")
	r.await(hitNotOlderThan, list, notOlderThan(known))
	r.expect(hitExact, list, exactly(known))
	mixedWalks(t, r, list, known)
	mixedWalks(t, r, k.Path(""), known)

	revision := createRole(t, r.cluster, ns, bad)
	path := list + "/" + url.PathEscape(bad)
	t.Cleanup(func() {
		if _, err := shared.direct.Do(context.WithoutCancel(t.Context()), http.MethodDelete, path, nil); err != nil {
			t.Error(err)
		}
	})
	fresh := newRig(t, shared, rigOptions{}) // one that finds it when it loads
	for _, r := range []*rig{r, fresh} {
		for _, path := range []string{list, k.Path("")} {
			r.await(fwdForm, path, anyVersion())
			r.expect(fwdForm, path, notOlderThan(revision))
			r.expect(fwdForm, path, exactly(revision))
			r.expect(fwdForm, path, exactly(known))
			r.expect(fwdForm, path, query("resourceVersion="+revision, "limit=1"))
			mixedWalks(t, r, path, revision)
		}
		a := r.expect(fwdForm, list, anyVersion())
		if !bytes.Contains(a.Body, []byte(`"name":"`+"\ufffd"+`b"`)) && !bytes.Contains(a.Body, []byte(`"name":"\ufffdb"`)) {
			t.Errorf("the name is not one that JSON cannot hold, this test has shown nothing: %s", a)
		}
	}
}

// mixedWalks reads a list in pages of one, each page from one side or the other, and wants the
// pages that the API server alone gives.
func mixedWalks(t *testing.T, r *rig, list, revision string) {
	t.Helper()
	want := pagesOfOne(t, list, revision, r.direct)
	for name, sides := range map[string][]*ask.Client{
		"listproxy alone":  {r.admin},
		"listproxy first":  {r.admin, r.direct},
		"API server first": {r.direct, r.admin},
	} {
		if diff := cmp.Diff(want, pagesOfOne(t, list, revision, sides...)); diff != "" {
			t.Errorf("%s at %s, %s (-want +got):\n%s", list, revision, name, diff)
		}
	}
}

// pagesOfOne are the pages of a walk, up to one that is refused. The sides take turns.
func pagesOfOne(t *testing.T, list, revision string, sides ...*ask.Client) []string {
	t.Helper()
	const most = 200
	q := query("resourceVersion="+revision, "limit=1")
	var pages []string
	for len(pages) < most {
		a, err := sides[len(pages)%len(sides)].Get(t.Context(), list+"?"+q.Encode())
		expect.NoError(t, err)
		pages = append(pages, http.StatusText(a.Code)+" "+plain(a.Body))
		next := a.Meta().Continue
		if a.Code != http.StatusOK || next == "" {
			break
		}
		q = query("limit=1", "continue="+next)
	}
	return pages
}

// createRole writes a role whose name JSON cannot hold.
func createRole(t *testing.T, c *cluster, namespace, name string) string {
	t.Helper()
	cfg := c.RESTConfig(controlplane.Admin)
	cfg.ContentType, cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"
	clients, err := kubernetes.NewForConfig(cfg)
	expect.NoError(t, err)
	role, err := clients.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	expect.NoError(t, err)
	if role.Name != name {
		t.Fatalf("the role's name is %q, not %q", role.Name, name)
	}
	return role.ResourceVersion
}
