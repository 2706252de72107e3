package forwarding

import (
	"context"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// grantTo gives rules to a user for the time of the test.
func grantTo(t *testing.T, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	grantToSubject(t, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}, rules...)
}

// grantToSubject gives rules to somebody for the time of the test.
func grantToSubject(t *testing.T, to rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role, err := admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "lent-"}, Rules: rules,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{to},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := admin.RbacV1().ClusterRoleBindings().Delete(ctx, role.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := admin.RbacV1().ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// TestImpersonationForReviewsOnly: listproxy's own account may create reviews as somebody, and not list
// as them (constrained impersonation). What kube-apiserver would refuse to be forwarded is not answered
// from memory, though the review says that the caller may list it.
func TestImpersonationForReviewsOnly(t *testing.T) {
	harness.Long(t)
	const group, own = "lent-team", controlplane.FeedUserName
	jane := newLogin(t, "jane-of-constraints", group)
	ns := newNamespace(t)
	newConfigMap(t, ns, "kept", nil)
	mayEdit(t, ns, group)
	grantTo(
		t, own,
		rbacv1.PolicyRule{
			Verbs: []string{"impersonate:user-info"}, APIGroups: []string{"authentication.k8s.io"},
			Resources: []string{"users"}, ResourceNames: []string{"jane-of-constraints"},
		},
		rbacv1.PolicyRule{
			Verbs: []string{"impersonate:user-info"}, APIGroups: []string{"authentication.k8s.io"},
			Resources: []string{"groups"}, ResourceNames: []string{group, "system:authenticated"},
		},
		rbacv1.PolicyRule{
			Verbs: []string{"impersonate:user-info"}, APIGroups: []string{"authentication.k8s.io"},
			Resources: []string{"userextras/" + credentialID},
		},
		rbacv1.PolicyRule{
			Verbs: []string{"impersonate-on:user-info:create"}, APIGroups: []string{"authorization.k8s.io"},
			Resources: []string{"selfsubjectaccessreviews"},
		},
	)
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
			return strings.HasSuffix(r.cacheStatus, "detail=not-lent")
		})
		for range 10 {
			r := d.do(t, list)
			wantRefused(t, r, http.StatusForbidden, "not-lent")
		}
	}
	grantTo(t, own, rbacv1.PolicyRule{
		Verbs: []string{"impersonate-on:user-info:list"}, APIGroups: []string{""}, Resources: []string{"configmaps"},
	})
	for name, configs := range ways(p) {
		d := certDoor(t, name, configs, jane)
		poll.Until(t, patience, "from memory, since the account may list as jane", func() bool {
			r := d.do(t, list)
			return isHit(r) && strings.Contains(r.Body, `"kept"`)
		})
	}
}
