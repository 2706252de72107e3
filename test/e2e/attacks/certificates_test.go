package attacks

import (
	"cmp"
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

// The users who attack with a certificate. The invalid certificates name the admin or a group of admins: a server that believed
// one would let its user do everything.
const (
	adminCert      = "admin by certificate"
	readerCert     = "alice by certificate"
	identifiedCert = "alice with a uid by certificate"
	developerCert  = "a developer by certificate"               // of a group that lists pods in team-a
	namedCert      = "named by certificate"                     // with the name of the service account named, hence its rights
	accountCert    = "a service account by certificate"         // without the group that lists pods in team-a
	memberCert     = "a service account's group by certificate" // with that group
	nobodyCert     = "nobody by certificate"
	outsiderCert   = "an outsider by certificate" // not in system:authenticated
	anonymousCert  = "anonymous by certificate"
	spelledCert    = "unusual letters by certificate" // in its name and groups
	oddCert        = "an odd name by certificate"     // " alice"
	ungroupedCert  = "an empty group by certificate"  // alice in the group ""

	expiredCert = "an expired certificate"
	futureCert  = "a certificate of tomorrow"
	foreignCert = "a foreign CA's certificate" // a CA of the same name as the right one
	serverCert  = "a server's certificate"
	// Signed by the right CA, but without a common name.
	namelessCert = "nameless by certificate"
)

// badCerts are the certificates that both servers refuse.
var badCerts = []string{expiredCert, futureCert, foreignCert, serverCert, namelessCert}

// withToken returns the name of a user who shows a certificate, and the token of another user.
func withToken(certificate, token string) string { return certificate + " with the token of " + token }

const (
	// dora and spelled are known by their certificates only, so listproxy must not emit their names.
	dora    = "dora-the-developer"
	spelled = "Name: with, all % sörts/of=things"
	// certificateUID is the uid in identifiedCert.
	certificateUID = "uid of a certificate"
)

// certificateRights returns the rights of users with certificates, and listproxy's right to impersonate these users, as
// docs/rbac-impersonation.yaml has it, with the rule for uids that a comment there names.
func certificateRights() []controlplane.Grant {
	const authentication = "authentication.k8s.io"
	return []controlplane.Grant{
		{
			To: []string{"group:developers", "group:system:serviceaccounts:team-b"}, Namespace: controlplane.TeamA,
			Rules: []rbacv1.PolicyRule{controlplane.Rule("get,list,watch", "", "pods")},
		},
		{To: []string{controlplane.FeedUserName}, Rules: controlplane.Impersonation()},
		{To: []string{controlplane.FeedUserName}, Rules: []rbacv1.PolicyRule{
			controlplane.Rule("impersonate", authentication, "uids", certificateUID),
		}},
	}
}

// createCertificateUsers grants certificateRights and creates the users who log in with a certificate.
func createCertificateUsers(ctx context.Context) error {
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
		adminSubject   = pkix.Name{CommonName: admin, Organization: []string{"system:masters"}}
		namedSubject   = pkix.Name{CommonName: "system:serviceaccount:team-a:" + named}
		accountSubject = pkix.Name{CommonName: "system:serviceaccount:team-b:someone"}
		memberSubject  = pkix.Name{
			CommonName:   accountSubject.CommonName,
			Organization: []string{"system:serviceaccounts", "system:serviceaccounts:team-b"},
		}
		uid = pkix.AttributeTypeAndValue{Type: asn1.X509UID(), Value: certificateUID}

		expired  = func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
		tomorrow = func(c *x509.Certificate) { c.NotBefore = time.Now().Add(24 * time.Hour) }
		server   = func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }
	)
	type certificate struct {
		subject    pkix.Name
		change     func(*x509.Certificate) // makes it invalid; nil: it stays valid
		authority  *controlplane.Authority // nil: the one that both servers accept
		mayListAll bool                    // its user may list the objects of all namespaces
	}
	for user, c := range map[string]certificate{
		adminCert:      {subject: adminSubject, mayListAll: true},
		readerCert:     {subject: pkix.Name{CommonName: reader}},
		identifiedCert: {subject: pkix.Name{CommonName: reader, ExtraNames: []pkix.AttributeTypeAndValue{uid}}},
		developerCert:  {subject: pkix.Name{CommonName: dora, Organization: []string{"cooks", "developers", "b, c"}}},
		namedCert:      {subject: namedSubject},
		accountCert:    {subject: accountSubject},
		memberCert:     {subject: memberSubject},
		nobodyCert:     {subject: pkix.Name{CommonName: nobody}},
		outsiderCert:   {subject: pkix.Name{CommonName: nobody, Organization: []string{"system:unauthenticated"}}},
		namelessCert:   {subject: pkix.Name{Organization: []string{"system:masters"}}},
		anonymousCert:  {subject: pkix.Name{CommonName: "system:anonymous"}},
		spelledCert:    {subject: pkix.Name{CommonName: spelled, Organization: []string{"a/b%2Fc", "Two Three", "ünï", "system:authenticated"}}},
		oddCert:        {subject: pkix.Name{CommonName: " " + reader}},
		ungroupedCert:  {subject: pkix.Name{CommonName: reader, Organization: []string{""}}},

		expiredCert: {subject: adminSubject, change: expired},
		futureCert:  {subject: adminSubject, change: tomorrow},
		foreignCert: {subject: adminSubject, authority: foreign},
		serverCert:  {subject: adminSubject, change: server},
	} {
		cert, key, err := cmp.Or(c.authority, clients).Issue(c.subject, c.change)
		if err != nil {
			return err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("the certificate of %s: %w", user, err)
		}
		logins[user] = login{certificate: &pair, mayListAll: c.mayListAll}
		for _, other := range []string{admin, reader, stranger} { // the same certificate, and another user's token
			logins[withToken(user, other)] = login{certificate: &pair, token: logins[other].token, mayListAll: c.mayListAll}
		}
	}
	return nil
}
