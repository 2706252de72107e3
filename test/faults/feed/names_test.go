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
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
)

var roles = kind{"rbac.authorization.k8s.io/v1", "Role", "roles", false, fieldsOf{"rules": []any{}}}

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
	list := k.list(ns)
	for _, name := range []string{"z", high} { // U+10000 sorts before U+FFFD in UTF-16, not in UTF-8
		r.create(t, k, ns, name)
	}
	r.await(hitAny, list, anyVersion())
	known := r.create(t, k, ns, "\uffeea")
	r.await(hitNotOlderThan, list, notOlderThan(known))
	r.expect(hitExact, list, exactly(known))
	mixedWalks(t, r, list, known)
	mixedWalks(t, r, k.list(""), known)

	revision := createRole(t, r.cluster, ns, bad)
	path := list + "/" + url.PathEscape(bad)
	t.Cleanup(func() {
		if _, err := shared.direct.Do(context.WithoutCancel(t.Context()), http.MethodDelete, path, nil); err != nil {
			t.Error(err)
		}
	})
	fresh := newRig(t, shared, rigOptions{}) // one that finds it when it loads
	for _, r := range []*rig{r, fresh} {
		for _, path := range []string{list, k.list("")} {
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	role, err := clients.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if role.Name != name {
		t.Fatalf("the role's name is %q, not %q", role.Name, name)
	}
	return role.ResourceVersion
}
