package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/listproxy/listproxy/test/controlplane"
)

// User is a user who sends requests.
type User struct {
	Name, Token string
	// Certificate is the certificate with which the user logs in, or nil.
	Certificate *tls.Certificate
	// Impersonation has the Impersonate-* headers that the user sends.
	Impersonation http.Header
	// ListsFromMemory reports whether this user must get a list of r from memory, in the namespace or ("") in all namespaces.
	ListsFromMemory func(r Resource, namespace string) bool
}

// The users besides those of package controlplane. They are service accounts in TeamB.
const (
	// oneObject may list and watch the ConfigMap a-0 of TeamB by its name, and nothing else. A user of this name, who logs in
	// with a certificate, has the same rights.
	oneObject = "one"
	// constrained may create SelfSubjectAccessReviews as alice, and do nothing else as alice (constrained impersonation,
	// KEP-5284).
	constrained = "constrained"
	// lister may do what constrained may, and list and watch pods of TeamA as alice.
	lister = "lister"
	// impersonator may do everything as anybody.
	impersonator = "impersonator"
)

// rights returns the rights of these users. The last one, to impersonate anybody, is also listproxy's.
func rights() []controlplane.Grant {
	return []controlplane.Grant{
		{To: []string{controlplane.TeamB + "/" + oneObject, oneObject}, Namespace: controlplane.TeamB, Rules: []rbacv1.PolicyRule{
			controlplane.Rule("list,watch", "", "configmaps", "a-0"),
		}},
		{To: []string{controlplane.TeamB + "/" + constrained, controlplane.TeamB + "/" + lister}, Rules: controlplane.ReviewsAs(controlplane.Alice)},
		{To: []string{controlplane.TeamB + "/" + lister}, Namespace: controlplane.TeamA, Rules: []rbacv1.PolicyRule{
			controlplane.Rule("impersonate-on:user-info:list,impersonate-on:user-info:watch", "", "pods"),
		}},
		{To: []string{controlplane.TeamB + "/" + impersonator, controlplane.FeedUserName}, Rules: controlplane.Impersonation()},
	}
}

// Values of User.ListsFromMemory, named after the lists that a user gets from memory.
func everything(Resource, string) bool { return true }
func nothing(Resource, string) bool    { return false }
func podsOfTeamA(r Resource, namespace string) bool {
	return r.Group == "" && r.Resource == "pods" && namespace == controlplane.TeamA
}

// newUsers grants the rights and returns the users.
func newUsers(ctx context.Context, plane *controlplane.ControlPlane) ([]User, error) {
	if err := plane.GrantAll(ctx, rights()...); err != nil {
		return nil, err
	}
	byCertificate, err := usersByCertificate(plane)
	if err != nil {
		return nil, err
	}
	impersonating, err := impersonatingUsers(ctx, plane)
	if err != nil {
		return nil, err
	}
	return slices.Concat(usersByToken(plane), byCertificate, impersonating), nil
}

// usersByToken returns the users of package controlplane, with their tokens, and one with an unknown token.
func usersByToken(plane *controlplane.ControlPlane) []User {
	users := []User{{Name: controlplane.Admin, ListsFromMemory: everything}, {Name: controlplane.Alice, ListsFromMemory: podsOfTeamA}}
	for _, name := range []string{controlplane.Carol, controlplane.Nobody, controlplane.Anonymous} {
		users = append(users, User{Name: name, ListsFromMemory: nothing})
	}
	for i := range users {
		users[i].Token = plane.Token(users[i].Name)
	}
	return append(users, User{Name: "stranger", Token: "a-token-that-nobody-has", ListsFromMemory: nothing})
}

// usersByCertificate returns users who log in with a client certificate.
func usersByCertificate(plane *controlplane.ControlPlane) ([]User, error) {
	var users []User
	for _, login := range []struct {
		name   string
		groups []string
		lists  func(Resource, string) bool // the user's ListsFromMemory
	}{
		{name: controlplane.Admin, groups: []string{"system:masters"}, lists: everything},
		{name: controlplane.Alice, lists: podsOfTeamA},
		{name: controlplane.Carol, groups: []string{"developers"}, lists: nothing},
		{name: controlplane.Nobody, groups: []string{"system:unauthenticated"}, lists: nothing},
		{name: oneObject, lists: nothing},
	} {
		certificate, err := certificateOf(plane, login.name, login.groups...)
		if err != nil {
			return nil, err
		}
		users = append(users, User{Name: login.name + " by certificate", Certificate: certificate, ListsFromMemory: login.lists})
	}
	return users, nil
}

// impersonatingUsers returns oneObject, and users who send Impersonate-* headers.
func impersonatingUsers(ctx context.Context, plane *controlplane.ControlPlane) ([]User, error) {
	tokens := map[string]string{controlplane.Alice: plane.Token(controlplane.Alice), controlplane.Anonymous: ""}
	for _, name := range []string{oneObject, constrained, lister, impersonator} {
		token, err := plane.CreateServiceAccountToken(ctx, controlplane.TeamB, name)
		if err != nil {
			return nil, err
		}
		tokens[name] = token
	}
	users := []User{{Name: oneObject, Token: tokens[oneObject], ListsFromMemory: nothing}}
	for _, u := range []struct {
		sender      string
		user, group string                      // whom the sender impersonates; "": no header
		lists       func(Resource, string) bool // User.ListsFromMemory
	}{
		{sender: impersonator, user: controlplane.Admin, group: "system:masters", lists: everything},
		{sender: impersonator, user: controlplane.Alice, lists: podsOfTeamA},
		{sender: lister, user: controlplane.Alice, lists: podsOfTeamA},
		{sender: impersonator, user: controlplane.Carol, lists: nothing},
		{sender: impersonator, user: "system:serviceaccount:team-b:" + oneObject, lists: nothing},
		{sender: impersonator, user: "system:anonymous", lists: nothing},
		{sender: impersonator, group: "system:masters", lists: nothing}, // refused: a group without a user
		{sender: constrained, user: controlplane.Alice, lists: nothing},
		{sender: constrained, user: controlplane.Admin, group: "system:masters", lists: nothing},
		{sender: controlplane.Alice, user: controlplane.Admin, lists: nothing},
		{sender: controlplane.Anonymous, user: controlplane.Admin, group: "system:masters", lists: nothing},
	} {
		header := http.Header{}
		if u.user != "" {
			header.Set("Impersonate-User", u.user)
		}
		if u.group != "" {
			header.Set("Impersonate-Group", u.group)
		}
		name := strings.Join(strings.Fields(u.sender+" as "+u.user+" "+u.group), " ")
		users = append(users, User{Name: name, Token: tokens[u.sender], Impersonation: header, ListsFromMemory: u.lists})
	}
	return users, nil
}

// certificateOf returns a new client certificate for a user in groups.
func certificateOf(plane *controlplane.ControlPlane, name string, groups ...string) (*tls.Certificate, error) {
	cert, key, err := plane.IssueCert(name, groups...)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("the certificate of %s: %w", name, err)
	}
	return &pair, nil
}
