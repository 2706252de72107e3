package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/listproxy/listproxy/test/controlplane"
)

// User is a user who sends requests.
type User struct {
	Name, Token string
	// Certificate is the certificate with which the user logs in, or nil.
	Certificate *tls.Certificate
	// As has the user's Impersonate-* headers.
	As http.Header
	// Lists reports whether the user may list a resource, and should get the list from memory. namespace is "" for all.
	Lists func(r Resource, namespace string) bool
}

// The users besides those of package controlplane. They are service accounts in TeamB.
const (
	// one may list and watch the ConfigMap a-0 of TeamB by its name, and nothing else.
	one = "one"
	// constrained may create SelfSubjectAccessReviews as alice, and do nothing else as alice (constrained impersonation,
	// KEP-5284).
	constrained = "constrained"
	// lister may do the same, and list and watch pods of TeamA as alice.
	lister = "lister"
	// impersonator may do everything as anybody.
	impersonator = "impersonator"
)

// rights returns the rights of these users, and listproxy's right to impersonate users, which the impersonator has as well.
func rights() []controlplane.Grant {
	return []controlplane.Grant{
		{To: []string{controlplane.TeamB + "/" + one, one}, Namespace: controlplane.TeamB, Rules: []rbacv1.PolicyRule{
			controlplane.Rule("list,watch", "", "configmaps", "a-0"),
		}},
		{To: []string{controlplane.TeamB + "/" + constrained, controlplane.TeamB + "/" + lister}, Rules: controlplane.ReviewsAs(controlplane.Alice)},
		{To: []string{controlplane.TeamB + "/" + lister}, Namespace: controlplane.TeamA, Rules: []rbacv1.PolicyRule{
			controlplane.Rule("impersonate-on:user-info:list,impersonate-on:user-info:watch", "", "pods"),
		}},
		{To: []string{controlplane.TeamB + "/" + impersonator, controlplane.FeedUserName}, Rules: controlplane.Impersonation()},
	}
}

// newUsers grants the rights and returns the users.
func newUsers(ctx context.Context, plane *controlplane.ControlPlane) ([]User, error) {
	if err := plane.GrantAll(ctx, rights()...); err != nil {
		return nil, err
	}
	everything := func(Resource, string) bool { return true }
	nothing := func(Resource, string) bool { return false }
	podsOfTeamA := func(r Resource, namespace string) bool {
		return r.Group == "" && r.Resource == "pods" && namespace == controlplane.TeamA
	}
	users := []User{{Name: controlplane.Admin, Lists: everything}, {Name: controlplane.Alice, Lists: podsOfTeamA}}
	for _, name := range []string{controlplane.Carol, controlplane.Nobody, controlplane.Anonymous} {
		users = append(users, User{Name: name, Lists: nothing})
	}
	for i := range users {
		users[i].Token = plane.Token(users[i].Name)
	}
	users = append(users, User{Name: "stranger", Token: "a-token-that-nobody-has", Lists: nothing})

	for _, login := range []struct {
		name   string
		groups []string
		lists  func(Resource, string) bool
	}{
		{controlplane.Admin, []string{"system:masters"}, everything},
		{controlplane.Alice, nil, podsOfTeamA},
		{controlplane.Carol, []string{"developers"}, nothing},
		{controlplane.Nobody, []string{"system:unauthenticated"}, nothing},
		{one, nil, nothing},
	} {
		certificate, err := certificateOf(plane, login.name, login.groups...)
		if err != nil {
			return nil, err
		}
		users = append(users, User{Name: login.name + " by certificate", Certificate: certificate, Lists: login.lists})
	}

	tokens := map[string]string{}
	for _, name := range []string{one, constrained, lister, impersonator} {
		token, err := plane.CreateServiceAccountToken(ctx, controlplane.TeamB, name)
		if err != nil {
			return nil, err
		}
		tokens[name] = token
	}
	impersonating := func(by, token string, pairs ...string) User {
		u := User{Name: by + " as", Token: token, As: http.Header{}, Lists: nothing}
		for i := 0; i+1 < len(pairs); i += 2 {
			u.As.Add(pairs[i], pairs[i+1])
			u.Name += " " + pairs[i+1]
		}
		return u
	}
	const user, group = "Impersonate-User", "Impersonate-Group"
	fromMemory := func(u User, lists func(Resource, string) bool) User {
		u.Lists = lists
		return u
	}
	return append(users,
		User{Name: one, Token: tokens[one], Lists: nothing},
		fromMemory(impersonating(impersonator, tokens[impersonator], user, controlplane.Admin, group, "system:masters"), everything),
		fromMemory(impersonating(impersonator, tokens[impersonator], user, controlplane.Alice), podsOfTeamA),
		fromMemory(impersonating(lister, tokens[lister], user, controlplane.Alice), podsOfTeamA),
		impersonating(impersonator, tokens[impersonator], user, controlplane.Carol),
		impersonating(impersonator, tokens[impersonator], user, "system:serviceaccount:team-b:"+one),
		impersonating(impersonator, tokens[impersonator], user, "system:anonymous"),
		impersonating(impersonator, tokens[impersonator], group, "system:masters"), // refused: a group without a user
		impersonating(constrained, tokens[constrained], user, controlplane.Alice),
		impersonating(constrained, tokens[constrained], user, controlplane.Admin, group, "system:masters"),
		impersonating(controlplane.Alice, plane.Token(controlplane.Alice), user, controlplane.Admin),
		impersonating(controlplane.Anonymous, "", user, controlplane.Admin, group, "system:masters"),
	), nil
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
