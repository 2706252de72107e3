package forwarding

import (
	"net/http"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/listproxy/listproxy/test/controlplane"
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
