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

// A Grant is rights that somebody is to have.
type Grant struct {
	// To are users; groups, as "group:NAME"; and service accounts, as "NAMESPACE/NAME".
	To []string
	// Namespace is where; "": everywhere.
	Namespace string
	// Role is a ClusterRole that there is; "": one is made of Rules.
	Role  string
	Rules []rbacv1.PolicyRule
}

// Rule allows verbs for resources of a group, both separated by commas; if there are names, for
// these only.
func Rule(verbs, group, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		Verbs: strings.Split(verbs, ","), APIGroups: []string{group}, Resources: strings.Split(resources, ","), ResourceNames: names,
	}
}

// ReviewsAs are rights to create SelfSubjectAccessReviews as a user, and to do nothing else as that
// user (constrained impersonation, KEP-5284).
func ReviewsAs(user string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		Rule("impersonate:user-info", "authentication.k8s.io", "users", user),
		Rule("impersonate-on:user-info:create", "authorization.k8s.io", "selfsubjectaccessreviews"),
	}
}

// Grant gives rights, as [Admin]. The API server's authorizer hears of them a moment later, and so
// it does of their end, which is revoke.
func (cp *ControlPlane) Grant(ctx context.Context, g Grant) (revoke func(context.Context) error, err error) {
	path, role, binding, kind := "/apis/"+rbacv1.GroupName+"/v1/", "clusterroles", "clusterrolebindings", "ClusterRole"
	if g.Namespace != "" {
		path, role, binding = path+"namespaces/"+g.Namespace+"/", "roles", "rolebindings"
		if g.Role == "" {
			kind = "Role"
		}
	}
	meta := metav1.ObjectMeta{Name: "granted-" + strings.ToLower(rand.Text())}
	made := []string{path + binding + "/" + meta.Name}
	if g.Role == "" {
		g.Role = meta.Name
		made = append(made, path+role+"/"+meta.Name)
		if err := cp.request(ctx, Admin, http.MethodPost, path+role, &rbacv1.Role{ObjectMeta: meta, Rules: g.Rules}); err != nil {
			return nil, fmt.Errorf("make a role: %w", err)
		}
	}
	bound := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: g.Role}}
	for _, to := range g.To {
		bound.Subjects = append(bound.Subjects, subject(to))
	}
	if err := cp.request(ctx, Admin, http.MethodPost, path+binding, bound); err != nil {
		return nil, fmt.Errorf("bind a role: %w", err)
	}
	return func(ctx context.Context) (err error) {
		for _, object := range made {
			err = errors.Join(err, cp.request(ctx, Admin, http.MethodDelete, object, nil))
		}
		return err
	}, nil
}

// GrantAll gives rights for as long as the control plane lives.
func (cp *ControlPlane) GrantAll(ctx context.Context, grants ...Grant) error {
	for _, g := range grants {
		if _, err := cp.Grant(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

func subject(of string) rbacv1.Subject {
	if group, is := strings.CutPrefix(of, "group:"); is {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}
	}
	if namespace, name, is := strings.Cut(of, "/"); is {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: of}
}

// Impersonation is what an account needs that states the users of client certificates, whoever they
// are: the rules of docs/rbac-impersonation.yaml without its names.
func Impersonation() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		Rule("impersonate", "", "users"),
		Rule("impersonate", "", "serviceaccounts"),
		Rule("impersonate", "", "groups"),
		Rule("impersonate", "authentication.k8s.io", "userextras/authentication.kubernetes.io/credential-id"),
	}
}

// ApplyDocs creates what a manifest in docs/ of the repository says, as [Admin], so that tests run
// with what an operator is told to install.
func (cp *ControlPlane) ApplyDocs(ctx context.Context, name string) error {
	root, err := binaries.RepoRoot()
	if err != nil {
		return err
	}
	_, err = cp.Kubectl(ctx, "", "apply", "-f", filepath.Join(root, "docs", name))
	return err
}
