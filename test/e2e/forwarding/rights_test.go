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

// TestImpersonationForReviewsOnly: listproxy's own account may create reviews as jane, but not list as jane (constrained
// impersonation). kube-apiserver would refuse her list if it were forwarded, so it must not come from memory either, though
// the review says that she may list.
func TestImpersonationForReviewsOnly(t *testing.T) {
	const user, group = "jane-of-constraints", "lent-team"
	const tries = 10 // after which a list would have come from memory
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
	grantProxy(controlplane.Rule("impersonate", "", "users", user)) // her name, but not her groups
	asJane := ask.MustNew(t, cp.RESTConfig(controlplane.Feed), patience).WithHeader("Impersonate-User", user)
	getUntil(t, "the account may impersonate her name", asJane, "/version", func(a ask.Answer) bool { return a.Code == http.StatusOK })
	for _, jane := range janes {
		for range tries {
			time.Sleep(100 * time.Millisecond) // until listproxy knows the grant as well
			requireForbidden(t, get(t, jane, list), "not-permitted")
		}
	}
	grantProxy(controlplane.Rule("impersonate-on:user-info:list", "", "configmaps"))
	for _, jane := range janes {
		getUntil(t, "from memory, since the account may list as jane", jane, list, func(a ask.Answer) bool {
			return a.FromMemory() && strings.Contains(string(a.Body), `"kept"`)
		})
	}
}

// TestRightsFollowRBAC: when carol's right is revoked, her lists are forwarded. A review is remembered for longer than the
// test waits, so only the watch of RBAC objects can have ended it. Bindings in another namespace do not end it: her lists
// still come from memory, without another review.
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
	before := countReviews()
	const bindings = 20
	for range bindings {
		grant(t, controlplane.Grant{To: []string{"somebody", controlplane.Carol}, Namespace: elsewhere, Role: "view"})()
		if a := get(t, carol, list); !a.FromMemory() {
			t.Errorf("after a binding in another namespace, not from memory: %s", a)
		}
	}
	expect.Same(t, before, countReviews())
	revoke()
	isForbidden := func(a ask.Answer) bool { return a.Code == http.StatusForbidden }
	getUntil(t, "kube-apiserver knows the revocation", direct.clientOf(t, controlplane.Carol), list, isForbidden)
	requireForbidden(t, getUntil(t, "carol may no longer list", carol, list, isForbidden), "not-allowed")
}
