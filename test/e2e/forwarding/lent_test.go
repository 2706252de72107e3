package forwarding

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// grant gives rights for the time of the test, or until revoke is called.
func grant(t *testing.T, g controlplane.Grant) (revoke func()) {
	t.Helper()
	end, err := cp.Grant(t.Context(), g)
	expect.NoError(t, err)
	revoke = sync.OnceFunc(func() {
		if err := end(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(revoke)
	return revoke
}

// TestImpersonationForReviewsOnly: listproxy's own account may create reviews as somebody, and not
// list as them (constrained impersonation). What kube-apiserver would refuse to be forwarded is not
// answered from memory, though the review says that the caller may list it.
func TestImpersonationForReviewsOnly(t *testing.T) {
	harness.Long(t)
	const group, own = "lent-team", controlplane.FeedUserName
	jane := newLogin(t, "jane-of-constraints", group)
	ns := newNamespace(t)
	newConfigMap(t, ns, "kept", nil)
	mayEdit(t, ns, group)
	grant(t, controlplane.Grant{To: []string{own}, Rules: append(
		controlplane.ReviewsAs("jane-of-constraints"),
		controlplane.Rule("impersonate:user-info", "authentication.k8s.io", "groups", group, "system:authenticated"),
		controlplane.Rule("impersonate:user-info", "authentication.k8s.io", "userextras/"+credentialID),
	)})
	p := startProcess(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed), Connect: true, Args: []string{"--client-ca-file", cp.CAPath(), "--eager", "configmaps"},
	})
	list := call{path: "/api/v1/namespaces/" + ns + "/configmaps?resourceVersion=0", user: controlplane.Anonymous}
	for name, configs := range ways(p) {
		d := certDoor(t, name, configs, jane)
		poll.Until(t, patience, "the account may review as jane", func() bool {
			r := d.do(t, list)
			if isHit(r) {
				t.Fatalf("%s: from memory: %s", name, r.Body)
			}
			return strings.HasSuffix(r.cacheStatus, "detail=not-permitted")
		})
		for range 10 {
			r := d.do(t, list)
			wantRefused(t, r, http.StatusForbidden, "not-permitted")
		}
	}
	grant(t, controlplane.Grant{To: []string{own}, Rules: []rbacv1.PolicyRule{
		controlplane.Rule("impersonate-on:user-info:list", "", "configmaps"),
	}})
	for name, configs := range ways(p) {
		d := certDoor(t, name, configs, jane)
		poll.Until(t, patience, "from memory, since the account may list as jane", func() bool {
			r := d.do(t, list)
			return isHit(r) && strings.Contains(r.Body, `"kept"`)
		})
	}
}
