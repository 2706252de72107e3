package attacks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/asn1"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/secrets"
)

// Who attacks with a certificate. Certificates that are wrong say that their holder is the admin.
const (
	adminCert      = "admin by certificate"
	readerCert     = "alice by certificate"
	identifiedCert = "alice with a uid by certificate"
	developerCert  = "a developer by certificate"               // of a group that lists pods in team-a
	namedCert      = "named by certificate"                     // the service account's name, which is enough for its rights
	accountCert    = "a service account by certificate"         // its name; its group, which lists pods in team-a, is not in the certificate
	memberCert     = "a service account's group by certificate" // and here it is
	nobodyCert     = "nobody by certificate"
	outsiderCert   = "an outsider by certificate" // not in system:authenticated
	anonymousCert  = "anonymous by certificate"
	spelledCert    = "a name and groups of all kinds by certificate"
	oddCert        = "an odd name by certificate"    // " alice"
	ungroupedCert  = "an empty group by certificate" // alice in the group ""

	expiredCert = "an expired certificate"
	futureCert  = "a certificate of tomorrow"
	foreignCert = "a foreign CA's certificate" // of the same name as the right one
	serverCert  = "a server's certificate"
	// It is of the right CA but names nobody.
	namelessCert = "nameless by certificate"
)

// badCerts are those that no server believes.
var badCerts = []string{expiredCert, futureCert, foreignCert, serverCert, namelessCert}

// with is a user who shows a certificate and a token.
func with(certificate, token string) string { return certificate + " with the token of " + token }

// dora and spelled are known by their certificates only, so listproxy must not emit their names.
const (
	dora           = "dora-the-developer"
	certificateUID = "uid of a certificate"
	spelled        = "Name: with, all % sörts/of=things"
)

// certificateRights are the rights of users with certificates, and those by which listproxy may impersonate
// them: the rules of docs/rbac-impersonation.yaml, and what it says to add for uids.
func certificateRights() []controlplane.Grant {
	const authentication = "authentication.k8s.io"
	return []controlplane.Grant{
		{To: []string{"group:developers", "group:system:serviceaccounts:team-b"}, Namespace: controlplane.TeamA, Rules: []rbacv1.PolicyRule{
			controlplane.Rule("get,list,watch", "", "pods"),
		}},
		{To: []string{controlplane.FeedUserName}, Rules: controlplane.Impersonation()},
		{To: []string{controlplane.FeedUserName}, Rules: []rbacv1.PolicyRule{
			controlplane.Rule("impersonate", authentication, "uids", certificateUID),
		}},
	}
}

// furnishCertificates makes the users who show certificates.
func furnishCertificates(ctx context.Context) error {
	if err := cp.GrantAll(ctx, certificateRights()...); err != nil {
		return err
	}
	secrets.Suite.AddIdentity("the name of "+developerCert, dora)
	secrets.Suite.AddIdentity("the name of "+spelledCert, spelled)
	clients := cp.ClientAuthority()
	foreign, err := controlplane.NewAuthority(clients.Name())
	if err != nil {
		return err
	}
	var (
		named   = pkix.Name{CommonName: "system:serviceaccount:team-a:" + named}
		boss    = pkix.Name{CommonName: admin, Organization: []string{"system:masters"}}
		account = pkix.Name{CommonName: "system:serviceaccount:team-b:someone"}
		alice   = func(names ...pkix.AttributeTypeAndValue) pkix.Name {
			return pkix.Name{CommonName: reader, ExtraNames: names}
		}
		expired  = func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
		tomorrow = func(c *x509.Certificate) { c.NotBefore = time.Now().Add(24 * time.Hour) }
		server   = func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }
	)
	member := account
	member.Organization = []string{"system:serviceaccounts", "system:serviceaccounts:team-b"}
	for user, c := range map[string]struct {
		by      *controlplane.Authority
		subject pkix.Name
		but     func(*x509.Certificate)
		all     bool
	}{
		adminCert:      {clients, boss, nil, true},
		readerCert:     {clients, alice(), nil, false},
		identifiedCert: {clients, alice(pkix.AttributeTypeAndValue{Type: asn1.X509UID(), Value: certificateUID}), nil, false},
		developerCert:  {clients, pkix.Name{CommonName: dora, Organization: []string{"cooks", "developers", "b, c"}}, nil, false},
		namedCert:      {clients, named, nil, false},
		accountCert:    {clients, account, nil, false},
		memberCert:     {clients, member, nil, false},
		nobodyCert:     {clients, pkix.Name{CommonName: nobody}, nil, false},
		outsiderCert:   {clients, pkix.Name{CommonName: nobody, Organization: []string{"system:unauthenticated"}}, nil, false},
		namelessCert:   {clients, pkix.Name{Organization: []string{"system:masters"}}, nil, false},
		anonymousCert:  {clients, pkix.Name{CommonName: "system:anonymous"}, nil, false},
		spelledCert:    {clients, pkix.Name{CommonName: spelled, Organization: []string{"a/b%2Fc", "Two Three", "ünï", "system:authenticated"}}, nil, false},
		oddCert:        {clients, pkix.Name{CommonName: " " + reader}, nil, false},
		ungroupedCert:  {clients, pkix.Name{CommonName: reader, Organization: []string{""}}, nil, false},

		expiredCert: {clients, boss, expired, false},
		futureCert:  {clients, boss, tomorrow, false},
		foreignCert: {foreign, boss, nil, false},
		serverCert:  {clients, boss, server, false},
	} {
		cert, key, err := c.by.Issue(c.subject, c.but)
		if err != nil {
			return err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("the certificate of %s: %w", user, err)
		}
		logins[user] = login{certificate: &pair, all: c.all}
		for _, other := range []string{admin, reader, stranger} {
			logins[with(user, other)] = login{certificate: &pair, token: logins[other].token, all: c.all}
		}
	}
	return nil
}
