package chart

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// ofItself is what kube-apiserver makes by itself only after it says that it is ready, as
// everything has it: by the hooks bootstrap-controller, start-system-namespaces-controller,
// start-legacy-token-tracking-controller and start-cluster-authentication-info-controller
// (k8s.io/kubernetes/pkg/controlplane), of which the first tries again after ten seconds, the
// second after a minute.
var ofItself = []string{
	"/configmaps/kube-system/extension-apiserver-authentication",
	"/configmaps/kube-system/kube-apiserver-legacy-service-account-token-tracking",
	"/namespaces//default",
	"/namespaces//kube-node-lease",
	"/namespaces//kube-public",
	"/namespaces//kube-system",
	"/services/default/kubernetes", // later than its IPAddress
}

// untouched are all objects of a cluster that nothing has been installed in, when kube-apiserver
// has made its own.
func (c *cluster) untouched(t *testing.T) []string {
	t.Helper()
	poll.Until(t, patience, "all that kube-apiserver makes by itself", func() bool {
		all := c.everything(t)
		return !slices.ContainsFunc(ofItself, func(object string) bool { return !slices.Contains(all, object) })
	})
	return c.everything(t)
}

// settle returns when kube-apiserver's authorizer has heard of all changes of rights so far. It
// hears of objects of one kind in their order, and of each of the four kinds apart
// (k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac). So when one more of each counts, all before
// them do.
func (c *cluster) settle(t *testing.T) {
	t.Helper()
	const namespace, group, far, near = "default", "settled.example.com", "far", "near"
	name := "settled-" + strings.ToLower(rand.Text())
	wide, inside := metav1.ObjectMeta{Name: name}, metav1.ObjectMeta{Name: name, Namespace: namespace}
	get := func(resource string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{group}, Resources: []string{resource}}}
	}
	role := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	user := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	must := func(_ any, err error) {
		t.Helper()
		expect.NoError(t, err)
	}
	ctx, rbac := t.Context(), c.admin.RbacV1()
	must(rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: wide, Rules: get(far)}, metav1.CreateOptions{}))
	must(rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: wide, RoleRef: role("ClusterRole"), Subjects: user}, metav1.CreateOptions{}))
	must(rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: inside, Rules: get(near)}, metav1.CreateOptions{}))
	must(rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: inside, RoleRef: role("Role"), Subjects: user}, metav1.CreateOptions{}))
	may := func(resource string) bool {
		review, err := c.admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "get", Group: group, Version: "v1", Resource: resource, Namespace: namespace,
			}},
		}, metav1.CreateOptions{})
		expect.NoError(t, err)
		return review.Status.Allowed
	}
	poll.Until(t, patience, "the authorizer has heard of all changes of rights", func() bool { return may(far) && may(near) })
	for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{
		rbac.ClusterRoleBindings().Delete, rbac.ClusterRoles().Delete, rbac.RoleBindings(namespace).Delete, rbac.Roles(namespace).Delete,
	} {
		expect.NoError(t, remove(ctx, name, metav1.DeleteOptions{}))
	}
}
