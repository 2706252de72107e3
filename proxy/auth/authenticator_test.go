package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// describe returns the code of a refusal, or says how the caller is identified: "alice [team-a]" for a verified user in these
// groups, "a token", "another credential" in the Authorization header, or "unidentified".
func describe(id Identity, refusal *Refusal) string {
	verified := id.VerifiedUser()
	switch {
	case refusal != nil:
		return strconv.Itoa(refusal.Code)
	case verified != nil:
		return fmt.Sprint(verified.Name, " ", verified.Groups)
	case id.HasToken():
		return "a token"
	case id.authorization != nil:
		return "another credential"
	}
	return "unidentified"
}

// TestAuthenticate: Authenticate identifies a caller by the certificate, if there is one, or by the token. X-Remote-* headers
// never count.
func TestAuthenticate(t *testing.T) {
	const (
		token            = "Authorization: Bearer t"
		aliceInHerGroups = "alice [team-a team-b system:authenticated]"
	)
	clientCA, otherCA := proxytest.NewCA(t), proxytest.NewCA(t)
	withCA, withoutCA := NewAuthenticator(clientCA.Options), NewAuthenticator(nil)
	issue := func(ca *proxytest.CA, name string, groups ...string) *x509.Certificate {
		return ca.Issue(t, pkix.Name{CommonName: name, Organization: groups}, nil)
	}
	issueChanged := func(change func(*x509.Certificate)) *x509.Certificate {
		return clientCA.Issue(t, pkix.Name{CommonName: "alice"}, change)
	}
	expired := issueChanged(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	forServers := issueChanged(func(c *x509.Certificate) { c.ExtKeyUsage[0] = x509.ExtKeyUsageServerAuth })
	alice := issue(clientCA, "alice", "team-a", "team-b")
	foreignAlice := issue(otherCA, "alice")
	for name, tt := range map[string]struct {
		certificate *x509.Certificate
		headers     string // one a line
		want        string // see describe
	}{
		// Without a certificate.
		"neither certificate nor header": {want: "unidentified"},
		"token":                          {headers: token, want: "a token"},
		"two tokens":                     {headers: token + "\nAuthorization: Bearer u", want: "unidentified"},
		"one token twice":                {headers: token + "\n" + token, want: "unidentified"},
		"empty header and a token":       {headers: "Authorization: \n" + token, want: "unidentified"},
		"empty header":                   {headers: "Authorization: ", want: "unidentified"},
		"password":                       {headers: "Authorization: Basic eA==", want: "another credential"},
		"token and another word":         {headers: "Authorization: Bearer a b", want: "unidentified"},
		"token and a space":              {headers: "Authorization: Bearer a ", want: "unidentified"},
		"token and a Unicode space":      {headers: "Authorization: Bearer a\u00a0", want: "unidentified"},
		"token and impersonation":        {headers: token + "\nImpersonate-User: root", want: "a token"},
		"X-Remote-* headers":             {headers: "X-Remote-User: bob\nx-remote-extra-a: b", want: "unidentified"},
		"X-Remote-User and a token":      {headers: "X-Remote-User: bob\n" + token, want: "a token"},

		// With a certificate of the client CA.
		"certificate":                     {certificate: alice, want: aliceInHerGroups},
		"certificate and a token":         {certificate: alice, headers: token, want: aliceInHerGroups},
		"certificate and X-Remote-User":   {certificate: alice, headers: "X-Remote-User: root", want: aliceInHerGroups},
		"certificate and impersonation":   {certificate: alice, headers: "Impersonate-User: root", want: "403"},
		"certificate and a group":         {certificate: alice, headers: "Impersonate-Group: system:masters", want: "403"},
		"certificate and an underscore":   {certificate: alice, headers: "Impersonate_user: root", want: "403"},
		"certificate and an unknown name": {certificate: alice, headers: "Impersonate-Tomorrow: x", want: "403"},

		// With a certificate that is not accepted.
		"certificate of another CA":                 {certificate: foreignAlice, want: "401"},
		"certificate of another CA and a token":     {certificate: foreignAlice, headers: token, want: "a token"},
		"certificate of another CA and a password":  {certificate: foreignAlice, headers: "Authorization: Basic eA==", want: "401"},
		"certificate of another CA, an empty token": {certificate: foreignAlice, headers: "Authorization: Bearer ", want: "401"},
		"expired certificate":                       {certificate: expired, want: "401"},
		"certificate for servers":                   {certificate: forServers, want: "401"},

		// With a certificate whose names may not, or cannot, be impersonated.
		"certificate without a name": {certificate: issue(clientCA, "", "x"), want: "401"},
		"certificate of a service account": {
			certificate: issue(clientCA, "system:serviceaccount:a:x"), want: "system:serviceaccount:a:x [system:authenticated]",
		},
		"certificate of system:anonymous": {certificate: issue(clientCA, user.Anonymous), want: "403"},
		"name with a space at its end":    {certificate: issue(clientCA, "root "), want: "403"},
		"name with a line end":            {certificate: issue(clientCA, "a\r\nImpersonate-Group: system:masters"), want: "403"},
		"group with a line end":           {certificate: issue(clientCA, "a", "b\nc"), want: "403"},
		"empty group":                     {certificate: issue(clientCA, "a", ""), want: "403"},
	} {
		r := proxytest.RequestBy()
		if tt.certificate != nil {
			r = proxytest.RequestBy(tt.certificate)
		}
		for line := range strings.Lines(tt.headers) {
			header, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			r.Header.Add(header, value)
		}
		id, refusal := withCA.Authenticate(r)
		if got := describe(id, refusal); got != tt.want {
			t.Errorf("%s: got %s, want %s", name, got, tt.want)
		}
		wantCredentials := refusal == nil && tt.want != "unidentified"
		if got := id.HasCredentials(); got != wantCredentials {
			t.Errorf("%s: got credentials %t, want %t", name, got, wantCredentials)
		}
	}
	// Without a CA, certificates do not count.
	expect.Same(t, "unidentified", describe(withoutCA.Authenticate(proxytest.RequestBy(alice))))
}

// TestShownCertificates: Authenticate accepts a chain of certificates that leads to the client CA, in any order. The chain
// may have at most five certificates, no two with one subject (other chains cost too much to verify). A token counts beside a
// chain that is not accepted.
func TestShownCertificates(t *testing.T) {
	ca := proxytest.NewCA(t)
	authenticator := NewAuthenticator(ca.Options)
	first := ca.Intermediate(t, "first")
	second := first.Intermediate(t, "second")
	third := second.Intermediate(t, "third")
	fourth := third.Intermediate(t, "fourth")
	alice := func(issuer *proxytest.CA) *x509.Certificate {
		return issuer.Issue(t, pkix.Name{CommonName: "alice"}, nil)
	}
	namesake := ca.Intermediate(t, "first")
	foreign := proxytest.NewCA(t)
	client := &proxytest.CA{Cert: alice(second), Key: second.Key}
	for name, tt := range map[string]struct {
		shown        []*x509.Certificate
		wantAccepted bool
	}{
		"signed by the CA":       {shown: []*x509.Certificate{alice(ca)}, wantAccepted: true},
		"in order":               {shown: []*x509.Certificate{alice(second), second.Cert, first.Cert}, wantAccepted: true},
		"in another order":       {shown: []*x509.Certificate{alice(second), first.Cert, second.Cert}, wantAccepted: true},
		"five, with the CA":      {shown: []*x509.Certificate{alice(third), third.Cert, second.Cert, first.Cert, ca.Cert}, wantAccepted: true},
		"six":                    {shown: []*x509.Certificate{alice(fourth), fourth.Cert, third.Cert, second.Cert, first.Cert, ca.Cert}},
		"two with one subject":   {shown: []*x509.Certificate{alice(first), namesake.Cert, first.Cert}},
		"one missing":            {shown: []*x509.Certificate{alice(second), second.Cert}},
		"signed by another CA":   {shown: []*x509.Certificate{alice(foreign), foreign.Cert}},
		"signed by a client":     {shown: []*x509.Certificate{alice(client), second.Cert, first.Cert}},
		"accepted one is second": {shown: []*x509.Certificate{alice(foreign), alice(ca)}},
	} {
		const verified = "alice [system:authenticated]"
		want, wantWithToken := "401", "a token"
		if tt.wantAccepted {
			want, wantWithToken = verified, verified
		}
		r := proxytest.RequestBy(tt.shown...)
		if got := describe(authenticator.Authenticate(r)); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		r.Header.Set("Authorization", "Bearer t")
		if got := describe(authenticator.Authenticate(r)); got != wantWithToken {
			t.Errorf("%s, with a token: got %s, want %s", name, got, wantWithToken)
		}
	}
}
