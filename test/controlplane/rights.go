package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
)

// A Grant describes rights for [ControlPlane.Grant].
type Grant struct {
	// To are users; groups, as "group:NAME"; and service accounts, as "NAMESPACE/NAME".
	To []string
	// Namespace is where the rights count; "" is everywhere.
	Namespace string
	// Role is an existing ClusterRole. If it is "", a role with Rules is created.
	Role  string
	Rules []rbacv1.PolicyRule
}

// Rule returns a rule that allows verbs for resources of a group: Rule("list,watch", "", "pods,nodes"). With names, it allows
// them for the objects with these names only.
func Rule(verbs, group, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		Verbs: strings.Split(verbs, ","), APIGroups: []string{group}, Resources: strings.Split(resources, ","), ResourceNames: names,
	}
}

// ReviewsAs returns rules that allow to impersonate a user, but only to create SelfSubjectAccessReviews (constrained
// impersonation, KEP-5284).
func ReviewsAs(user string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		Rule("impersonate:user-info", "authentication.k8s.io", "users", user),
		Rule("impersonate-on:user-info:create", "authorization.k8s.io", "selfsubjectaccessreviews"),
	}
}

// Grant grants rights, as [Admin], until revoke is called. It creates a binding of a role, and the role unless it exists. The
// API server's authorizer learns of a grant, and of its revocation, a moment later.
func (cp *ControlPlane) Grant(ctx context.Context, g Grant) (revoke func(context.Context) error, err error) {
	path := "/apis/" + rbacv1.GroupName + "/v1/"
	roles, bindings := path+"clusterroles", path+"clusterrolebindings"
	kind := "ClusterRole" // of the role that is bound
	if g.Namespace != "" {
		path += "namespaces/" + g.Namespace + "/"
		roles, bindings = path+"roles", path+"rolebindings"
		if g.Role == "" {
			kind = "Role"
		}
	}
	meta := metav1.ObjectMeta{Name: "granted-" + strings.ToLower(rand.Text())}
	created := []string{bindings + "/" + meta.Name} // paths
	if g.Role == "" {
		g.Role = meta.Name
		created = append(created, roles+"/"+meta.Name)
		if err := cp.request(ctx, Admin, http.MethodPost, roles, &rbacv1.Role{ObjectMeta: meta, Rules: g.Rules}); err != nil {
			return nil, fmt.Errorf("create a role: %w", err)
		}
	}
	bound := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: g.Role}}
	for _, to := range g.To {
		bound.Subjects = append(bound.Subjects, subject(to))
	}
	if err := cp.request(ctx, Admin, http.MethodPost, bindings, bound); err != nil {
		return nil, fmt.Errorf("bind a role: %w", err)
	}
	return func(ctx context.Context) (err error) {
		for _, object := range created {
			err = errors.Join(err, cp.request(ctx, Admin, http.MethodDelete, object, nil))
		}
		return err
	}, nil
}

// GrantAll grants rights for as long as the control plane exists.
func (cp *ControlPlane) GrantAll(ctx context.Context, grants ...Grant) error {
	for _, g := range grants {
		if _, err := cp.Grant(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// subject parses an element of [Grant].To.
func subject(to string) rbacv1.Subject {
	if group, ok := strings.CutPrefix(to, "group:"); ok {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}
	}
	if namespace, name, ok := strings.Cut(to, "/"); ok {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: to}
}

// Impersonation returns the rules that listproxy's account needs to impersonate any user of a client certificate: those of
// docs/rbac-impersonation.yaml without its names.
func Impersonation() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		Rule("impersonate", "", "users"),
		Rule("impersonate", "", "serviceaccounts"),
		Rule("impersonate", "", "groups"),
		Rule("impersonate", "authentication.k8s.io", "userextras/authentication.kubernetes.io/credential-id"),
	}
}

// ApplyDocs applies a manifest in docs/ of the repository, as [Admin], so that tests run
// with what operators install.
func (cp *ControlPlane) ApplyDocs(ctx context.Context, name string) error {
	root, err := binaries.RepoRoot()
	if err != nil {
		return err
	}
	_, err = cp.Kubectl(ctx, "", "apply", "-f", filepath.Join(root, "docs", name))
	return err
}
