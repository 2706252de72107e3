package auth

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestIdentify: who a caller is, by certificate or by token. X-Remote-* headers never count, and a certificate
// does not without a CA.
func TestIdentify(t *testing.T) {
	clients, others := proxytest.NewCA(t), proxytest.NewCA(t)
	named := func(ca *proxytest.CA, name string, groups ...string) *x509.Certificate {
		return ca.Issue(t, pkix.Name{CommonName: name, Organization: groups}, nil)
	}
	changed := func(change func(*x509.Certificate)) *x509.Certificate {
		return clients.Issue(t, pkix.Name{CommonName: "alice"}, change)
	}
	alice := named(clients, "alice", "team-a", "team-b")
	identifier := NewAuthenticator(clients.Options)
	tokensOnly := NewAuthenticator(nil)
	headers := func(lines ...string) http.Header {
		h := http.Header{}
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			h.Add(name, value)
		}
		return h
	}
	const aliceInHerGroups = "alice [team-a team-b system:authenticated]"
	expired := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	forServers := func(c *x509.Certificate) { c.ExtKeyUsage[0] = x509.ExtKeyUsageServerAuth }
	for name, test := range map[string]struct {
		certificate *x509.Certificate
		header      http.Header
		withoutCA   bool
		wantUser    string // who is impersonated: name, groups; or ""
		wantToken   bool   // the caller brings a token
		wantOther   bool   // or another credential in its Authorization header
		wantCode    int    // of the refusal, or 0
	}{
		"nothing":                  {},
		"a token":                  {header: headers("Authorization: Bearer t"), wantToken: true},
		"two tokens":               {header: headers("Authorization: Bearer t", "Authorization: Bearer u")},
		"the same twice":           {header: headers("Authorization: Bearer t", "Authorization: Bearer t")},
		"an empty one and a token": {header: headers("Authorization: ", "Authorization: Bearer t")},
		"an empty one":             {header: headers("Authorization: ")},
		"no token":                 {header: headers("Authorization: Basic eA=="), wantOther: true},
		"a word behind":            {header: headers("Authorization: Bearer a b")},
		"a space behind":           {header: headers("Authorization: Bearer a ")},
		"a space that Unicode has": {header: headers("Authorization: Bearer a\u00a0")},
		"a certificate":            {certificate: alice, wantUser: aliceInHerGroups},
		"a certificate and a token": {
			certificate: alice, header: headers("Authorization: Bearer t"), wantUser: aliceInHerGroups,
		},
		"a certificate and --as": {certificate: alice, header: headers("Impersonate-User: root"), wantCode: 403},
		"a certificate and a group": {
			certificate: alice, header: headers("Impersonate-Group: system:masters"), wantCode: 403,
		},
		"a certificate and an underscore":  {certificate: alice, header: headers("Impersonate_user: root"), wantCode: 403},
		"a certificate and a name to come": {certificate: alice, header: headers("Impersonate-Tomorrow: x"), wantCode: 403},
		"a token and --as": {
			header: headers("Authorization: Bearer t", "Impersonate-User: root"), wantToken: true,
		},
		"a certificate that says who it is not": {
			certificate: alice, header: headers("X-Remote-User: root"), wantUser: aliceInHerGroups,
		},
		"another CA's": {certificate: named(others, "alice"), wantCode: 401},
		"another CA's and a token": {
			certificate: named(others, "alice"), header: headers("Authorization: Bearer t"), wantToken: true,
		},
		"another CA's and no bearer": {
			certificate: named(others, "alice"), header: headers("Authorization: Basic eA=="), wantCode: 401,
		},
		"another CA's and an empty token": {
			certificate: named(others, "alice"), header: headers("Authorization: Bearer "), wantCode: 401,
		},
		"expired": {certificate: changed(expired), wantCode: 401},
		"for servers": {
			certificate: changed(forServers), wantCode: 401,
		},
		"no name": {certificate: named(clients, "", "x"), wantCode: 401},
		"a service account without groups": {
			certificate: named(clients, "system:serviceaccount:a:x"), wantUser: "system:serviceaccount:a:x [system:authenticated]",
		},
		"anonymous by certificate": {certificate: named(clients, user.Anonymous), wantCode: 403},
		"a name with outer spaces": {certificate: named(clients, "root "), wantCode: 403},
		"a name with a line end": {
			certificate: named(clients, "a\r\nImpersonate-Group: system:masters"), wantCode: 403,
		},
		"a group with a line end":       {certificate: named(clients, "a", "b\nc"), wantCode: 403},
		"an empty group":                {certificate: named(clients, "a", ""), wantCode: 403},
		"a certificate without a CA":    {certificate: alice, withoutCA: true},
		"headers without a certificate": {header: headers("X-Remote-User: bob", "x-remote-extra-a: b")},
		"headers and a token": {
			header: headers("X-Remote-User: bob", "Authorization: Bearer t"), wantToken: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &http.Request{Header: test.header, TLS: &tls.ConnectionState{}}
			if r.Header == nil {
				r.Header = http.Header{}
			}
			if test.certificate != nil {
				r.TLS.PeerCertificates = []*x509.Certificate{test.certificate}
			}
			authenticator := identifier
			if test.withoutCA {
				authenticator = tokensOnly
			}
			id, refusal := authenticator.Authenticate(r)
			code := 0
			if refusal != nil {
				code = refusal.Code
			}
			if code != test.wantCode {
				t.Fatalf("refused with %d, want %d", code, test.wantCode)
			}
			impersonated := ""
			if id.Impersonated() != nil {
				impersonated = id.Impersonated().Name + " [" + strings.Join(id.Impersonated().Groups, " ") + "]"
			}
			if impersonated != test.wantUser {
				t.Errorf("impersonated is %q, want %q", impersonated, test.wantUser)
			}
			credentials := test.wantToken || test.wantOther
			expect.Same(t, test.wantToken, id.HasToken())
			expect.Same(t, credentials, id.authorization != nil)
			expect.Same(t, credentials || test.wantUser != "", id.Known())
		})
	}
}

// TestShownCertificates: a chain is believed as kube-apiserver believes it, in any order, if it is
// quickly verified; and a token counts beside one that is not believed.
func TestShownCertificates(t *testing.T) {
	ca := proxytest.NewCA(t)
	i := NewAuthenticator(ca.Options)
	first := ca.Intermediate(t, "first")
	second := first.Intermediate(t, "second")
	third := second.Intermediate(t, "third")
	fourth := third.Intermediate(t, "fourth")
	alice := func(by *proxytest.CA) *x509.Certificate { return by.Issue(t, pkix.Name{CommonName: "alice"}, nil) }
	again, foreign := ca.Intermediate(t, "first"), proxytest.NewCA(t)
	client := &proxytest.CA{Cert: alice(second), Key: second.Key}
	for name, test := range map[string]struct {
		shown        []*x509.Certificate
		wantBelieved bool
	}{
		"the CA's own":         {shown: []*x509.Certificate{alice(ca)}, wantBelieved: true},
		"in order":             {shown: []*x509.Certificate{alice(second), second.Cert, first.Cert}, wantBelieved: true},
		"the other way round":  {shown: []*x509.Certificate{alice(second), first.Cert, second.Cert}, wantBelieved: true},
		"with the CA, five":    {shown: []*x509.Certificate{alice(third), third.Cert, second.Cert, first.Cert, ca.Cert}, wantBelieved: true},
		"six":                  {shown: []*x509.Certificate{alice(fourth), fourth.Cert, third.Cert, second.Cert, first.Cert, ca.Cert}},
		"two of one name":      {shown: []*x509.Certificate{alice(first), again.Cert, first.Cert}},
		"one is missing":       {shown: []*x509.Certificate{alice(second), second.Cert}},
		"from nowhere":         {shown: []*x509.Certificate{alice(foreign), foreign.Cert}},
		"signed by a client":   {shown: []*x509.Certificate{alice(client), second.Cert, first.Cert}},
		"the name of a client": {shown: []*x509.Certificate{alice(foreign), alice(ca)}},
	} {
		id, refusal := i.Authenticate(proxytest.RequestBy(test.shown...))
		believed := refusal == nil && id.Impersonated() != nil
		if believed != test.wantBelieved || !believed && refusal.Code != http.StatusUnauthorized {
			t.Errorf("%s: believed %t, refused with %v; want it believed: %t", name, believed, refusal, test.wantBelieved)
		}
		r := proxytest.RequestBy(test.shown...)
		r.Header.Set("Authorization", "Bearer t")
		id, refusal = i.Authenticate(r)
		if refusal != nil || (id.Impersonated() != nil) != test.wantBelieved || id.HasToken() == test.wantBelieved {
			t.Errorf("%s, with a token: refused with %v, want the certificate believed: %t", name, refusal, test.wantBelieved)
		}
	}
}
