package forwarding

import (
	"net/http"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/secrets"
)

// trial is the service account of docs/rbac.yaml; its namespace has the same name.
const trial = "listproxy-trial"

// credentialID is the extra of a user in which kube-apiserver says which certificate was shown.
const credentialID = "authentication.kubernetes.io/credential-id"

// impersonator returns the configuration of an account with the rights in docs/rbac.yaml and
// docs/rbac-impersonation.yaml, granted as an operator would.
func impersonator(t *testing.T) *rest.Config {
	t.Helper()
	for _, manifest := range []string{"rbac.yaml", "rbac-impersonation.yaml"} {
		expect.NoError(t, cp.ApplyDocs(t.Context(), manifest))
	}
	config := cp.RESTConfig(controlplane.Anonymous)
	var err error
	config.BearerToken, err = cp.CreateServiceAccountToken(t.Context(), trial, trial)
	expect.NoError(t, err)
	// docs/rbac-impersonation.yaml names no users who may be impersonated.
	grant(t, controlplane.Grant{To: []string{trial + "/" + trial}, Rules: controlplane.Impersonation()})
	somebody := ask.MustNew(t, config, patience).WithHeader("Impersonate-User", "somebody")
	getUntil(t, "kube-apiserver's authorizer knows the grant", somebody, "/version", func(a ask.Answer) bool { return a.Code == http.StatusOK })
	return config
}

// clientByCertificate returns a client that goes this way and logs in with a certificate. No listproxy may log the user's name.
func (w way) clientByCertificate(t *testing.T, user string, groups ...string) *ask.Client {
	t.Helper()
	config := cp.RESTConfig(controlplane.Anonymous)
	var err error
	config.CertData, config.KeyData, err = cp.IssueCert(user, groups...)
	expect.NoError(t, err)
	secrets.Suite.AddIdentity("the name of "+user+", who logs in with a certificate,", user)
	return ask.MustNew(t, w(config), patience)
}

// TestMayNotImpersonate: if listproxy's account may not impersonate, kube-apiserver refuses the requests of users with
// certificates, in its own words.
func TestMayNotImpersonate(t *testing.T) {
	for name, route := range map[string]way{"server": viaServer, "proxy-url": viaProxyURL} {
		master := route.clientByCertificate(t, "master-in-vain", "system:masters")
		for path, wantReason := range map[string]string{
			"/api/v1/pods?resourceVersion=0": "not-allowed", "/api/v1/pods": "consistent", "/version": "not-list",
		} {
			t.Run(name+" "+path, func(t *testing.T) {
				a := get(t, master, path)
				requireForbidden(t, a, wantReason)
				expect.Says(t, string(a.Body), `User \"listproxy\" cannot impersonate`)
			})
		}
	}
}

// TestImpersonationForReviewsOnly: a list of jane, who logs in with a certificate, comes from memory only if it could be
// forwarded, too. To forward it, listproxy's own account must have the right to list as jane (constrained impersonation,
// KEP-5284). With the right to create reviews as jane alone, a review says that jane may list, but kube-apiserver would refuse
// the forwarded list.
func TestImpersonationForReviewsOnly(t *testing.T) {
	const user, group = "jane-of-constraints", "lent-team"
	const tries = 10 // enough for a list to come from memory, if it could
	ns := newNamespace(t)
	newConfigMap(t, ns, "kept", nil)
	grant(t, controlplane.Grant{To: []string{"group:" + group}, Namespace: ns, Role: "cluster-admin"})
	// grantProxy grants rights to listproxy's own account.
	grantProxy := func(rules ...rbacv1.PolicyRule) {
		grant(t, controlplane.Grant{To: []string{controlplane.FeedUserName}, Rules: rules})
	}
	grantProxy(append(
		controlplane.ReviewsAs(user),
		controlplane.Rule("impersonate:user-info", "authentication.k8s.io", "groups", group, "system:authenticated"),
		controlplane.Rule("impersonate:user-info", "authentication.k8s.io", "userextras/"+credentialID),
	)...)
	list := "/api/v1/namespaces/" + ns + "/configmaps?resourceVersion=0"

	// Step 1: the account may create reviews as jane, and no more.
	janes := []*ask.Client{viaServer.clientByCertificate(t, user, group), viaProxyURL.clientByCertificate(t, user, group)}
	for _, jane := range janes {
		getUntil(t, "the account may review as jane", jane, list, func(a ask.Answer) bool {
			if a.FromMemory() {
				t.Fatalf("%s comes from memory: %s", list, a)
			}
			return strings.HasSuffix(a.Source(), "detail=not-permitted")
		})
		for range tries {
			requireForbidden(t, get(t, jane, list), "not-permitted")
		}
	}

	// Step 2: the account may also impersonate her name, but not her groups. That is not enough for a list.
	grantProxy(controlplane.Rule("impersonate", "", "users", user))
	asJane := ask.MustNew(t, cp.RESTConfig(controlplane.Feed), patience).WithHeader("Impersonate-User", user)
	getUntil(t, "the account may impersonate her name", asJane, "/version", func(a ask.Answer) bool { return a.Code == http.StatusOK })
	for _, jane := range janes {
		for range tries {
			time.Sleep(100 * time.Millisecond) // until listproxy knows the grant as well
			requireForbidden(t, get(t, jane, list), "not-permitted")
		}
	}

	// Step 3: the account may list ConfigMaps as jane.
	grantProxy(controlplane.Rule("impersonate-on:user-info:list", "", "configmaps"))
	for _, jane := range janes {
		getUntil(t, "from memory, since the account may list as jane", jane, list, func(a ask.Answer) bool {
			return a.FromMemory() && strings.Contains(string(a.Body), `"kept"`)
		})
	}
}

// TestRightsFollowRBAC: when carol's right is revoked, her lists are forwarded. listproxy remembers a review for longer than
// the test takes (--review-ttl), so it can learn of the revocation only from its watch of RBAC objects. New bindings in another
// namespace do not matter: her lists still come from memory, without another review.
func TestRightsFollowRBAC(t *testing.T) {
	own := harness.RunProxy(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed), Args: []string{"--review-ttl", longTTL, "--eager", "pods"},
	})
	ns, elsewhere := newNamespace(t), newNamespace(t)
	list := "/api/v1/namespaces/" + ns + "/pods?resourceVersion=0"
	carol := way(own.RESTConfig).clientOf(t, controlplane.Carol)
	requireForbidden(t, get(t, carol, list), "not-allowed")
	revoke := grant(t, controlplane.Grant{
		To: []string{controlplane.Carol}, Namespace: ns, Rules: []rbacv1.PolicyRule{controlplane.Rule("list", "", "pods")},
	})
	_, err := carol.AwaitMemory(t.Context(), list)
	expect.NoError(t, err)
	countReviews := func() float64 {
		asked, _, err := own.Metric(t.Context(), "listproxy_upstream_requests_total", map[string]string{"purpose": "review"})
		expect.NoError(t, err)
		return asked
	}
	// Bindings that do not concern the list.
	before := countReviews()
	const bindings = 20
	for range bindings {
		grant(t, controlplane.Grant{To: []string{"somebody", controlplane.Carol}, Namespace: elsewhere, Role: "view"})()
		if a := get(t, carol, list); !a.FromMemory() {
			t.Errorf("after a binding in another namespace, not from memory: %s", a)
		}
	}
	expect.Same(t, before, countReviews())
	// The revocation.
	revoke()
	isForbidden := func(a ask.Answer) bool { return a.Code == http.StatusForbidden }
	getUntil(t, "kube-apiserver knows the revocation", direct.clientOf(t, controlplane.Carol), list, isForbidden)
	requireForbidden(t, getUntil(t, "carol may no longer list", carol, list, isForbidden), "not-allowed")
}
