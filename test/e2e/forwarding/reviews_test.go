package forwarding

import (
	"context"
	"net/http"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// carolMay lets carol list pods in a namespace until revoke is called.
func carolMay(t *testing.T, ns string) (revoke func()) {
	t.Helper()
	return grant(t, controlplane.Grant{To: []string{controlplane.Carol}, Namespace: ns, Rules: []rbacv1.PolicyRule{controlplane.Rule("list", "", "pods")}})
}

func carolLists(ns string) call {
	return call{path: "/api/v1/namespaces/" + ns + "/pods?resourceVersion=0", user: controlplane.Carol}
}

// awaitDirect waits until the API server itself answers with a status.
func awaitDirect(t *testing.T, c call, status int) {
	t.Helper()
	poll.Until(t, patience, "the API server follows the change of rights", func() bool { return direct.do(t, c).Status == status })
}

// TestRightsFollowRBAC gives carol a right and takes it away. The shared listproxy would believe
// its review for longer than this waits, so it is the watch of RBAC objects that ends it.
func TestRightsFollowRBAC(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	list := carolLists(ns)
	wantRefused(t, via.do(t, list), http.StatusForbidden, "not-allowed")
	revoke := carolMay(t, ns)
	poll.Until(t, patience, "carol's list comes from memory", func() bool { return isHit(via.do(t, list)) })

	revoke()
	began := time.Now()
	awaitDirect(t, list, http.StatusForbidden)
	upstream := time.Since(began)
	var last reply
	poll.Until(t, patience, "carol may no longer list", func() bool {
		last = via.do(t, list)
		return last.Status == http.StatusForbidden
	})
	wantRefused(t, last, http.StatusForbidden, "not-allowed")
	t.Logf("the revoked right ended %v after its revocation upstream and %v after it here", upstream, time.Since(began))
}

// TestRightsEndWithTheTTL does the same where listproxy may not watch RBAC objects. A review that
// said yes was sent before the API server's own no was seen, so no list that was asked for later
// than the TTL after that may come from memory.
func TestRightsEndWithTheTTL(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	const ttl = time.Second
	d := startProxy(t, harness.ProxyOptions{
		Upstream: podsOnly(t), Args: []string{"--review-ttl", ttl.String(), "--eager", "pods"},
	})
	ns := newNamespace(t)
	list := carolLists(ns)
	revoke := carolMay(t, ns)
	poll.Until(t, patience, "carol's list comes from memory", func() bool { return isHit(d.do(t, list)) })

	revoke()
	awaitDirect(t, list, http.StatusForbidden)
	refused := time.Now()
	var after time.Duration
	poll.Until(t, patience, "carol may no longer list", func() bool {
		asked := time.Since(refused)
		r := d.do(t, list)
		if isHit(r) && asked > ttl {
			t.Fatalf("a list came from memory that was asked for %v after the API server's no", asked)
		}
		after = asked
		return r.Status == http.StatusForbidden
	})
	t.Logf("the revoked right ended %v after the API server's no", after)
}

// TestRevokedIsNotRememberedWithoutTTL: without a TTL, the API server's no is listproxy's no.
func TestRevokedIsNotRememberedWithoutTTL(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	d := startProxy(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed), Args: []string{"--review-ttl", "0", "--eager", "pods"},
	})
	for range 3 {
		ns := newNamespace(t)
		list := carolLists(ns)
		revoke := carolMay(t, ns)
		awaitDirect(t, list, http.StatusOK)
		if r := d.do(t, list); !isHit(r) {
			t.Errorf("status %d, %s", r.Status, r.cacheStatus)
		}
		revoke()
		awaitDirect(t, list, http.StatusForbidden)
		r := d.do(t, list)
		wantRefused(t, r, http.StatusForbidden, "not-allowed")
		if diff := diff(direct.do(t, list), r); diff != "" {
			t.Errorf("(-direct +via):\n%s", diff)
		}
	}
}

// podsOnly makes credentials for a listproxy that may list and watch pods and nothing else.
func podsOnly(t *testing.T) *rest.Config {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	name := newNamespace(t) // serves as a name for all
	token, err := cp.CreateServiceAccountToken(ctx, name, name)
	expect.NoError(t, err)
	meta := metav1.ObjectMeta{Name: name}
	_, err = admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}},
	}}, metav1.CreateOptions{})
	expect.NoError(t, err)
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: name, Name: name}},
	}, metav1.CreateOptions{})
	expect.NoError(t, err)
	config := cp.RESTConfig(controlplane.Anonymous)
	config.BearerToken = token
	return config
}
