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
	says := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i+1 < len(pairs); i += 2 {
			h.Add(pairs[i], pairs[i+1])
		}
		return h
	}
	for name, test := range map[string]struct {
		certificate *x509.Certificate
		header      http.Header
		withoutCA   bool
		user        string // who is impersonated: name, groups; or ""
		token       bool   // the caller brings a token
		other       bool   // or another credential in its Authorization header
		code        int    // of the refusal, or 0
	}{
		"nothing":                  {},
		"a token":                  {header: says("Authorization", "Bearer t"), token: true},
		"two tokens":               {header: says("Authorization", "Bearer t", "Authorization", "Bearer u")},
		"the same twice":           {header: says("Authorization", "Bearer t", "Authorization", "Bearer t")},
		"an empty one and a token": {header: says("Authorization", "", "Authorization", "Bearer t")},
		"an empty one":             {header: says("Authorization", "")},
		"no token":                 {header: says("Authorization", "Basic eA=="), other: true},
		"a word behind":            {header: says("Authorization", "Bearer a b")},
		"a space behind":           {header: says("Authorization", "Bearer a ")},
		"a space that Unicode has": {header: says("Authorization", "Bearer a\u00a0")},
		"a certificate":            {certificate: alice, user: "alice [team-a team-b system:authenticated]"},
		"a certificate and a token": {
			certificate: alice, header: says("Authorization", "Bearer t"), user: "alice [team-a team-b system:authenticated]",
		},
		"a certificate and --as":           {certificate: alice, header: says("Impersonate-User", "root"), code: 403},
		"a certificate and a group":        {certificate: alice, header: says("Impersonate-Group", "system:masters"), code: 403},
		"a certificate and an underscore":  {certificate: alice, header: says("Impersonate_user", "root"), code: 403},
		"a certificate and a name to come": {certificate: alice, header: says("Impersonate-Tomorrow", "x"), code: 403},
		"a token and --as":                 {header: says("Authorization", "Bearer t", "Impersonate-User", "root"), token: true},
		"a certificate that says who it is not": {
			certificate: alice, header: says("X-Remote-User", "root"), user: "alice [team-a team-b system:authenticated]",
		},
		"another CA's":                    {certificate: named(others, "alice"), code: 401},
		"another CA's and a token":        {certificate: named(others, "alice"), header: says("Authorization", "Bearer t"), token: true},
		"another CA's and no bearer":      {certificate: named(others, "alice"), header: says("Authorization", "Basic eA=="), code: 401},
		"another CA's and an empty token": {certificate: named(others, "alice"), header: says("Authorization", "Bearer "), code: 401},
		"expired":                         {certificate: changed(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), code: 401},
		"for servers": {
			certificate: changed(func(c *x509.Certificate) { c.ExtKeyUsage[0] = x509.ExtKeyUsageServerAuth }), code: 401,
		},
		"no name": {certificate: named(clients, "", "x"), code: 401},
		"a service account without groups": {
			certificate: named(clients, "system:serviceaccount:a:x"), user: "system:serviceaccount:a:x [system:authenticated]",
		},
		"anonymous by certificate":      {certificate: named(clients, user.Anonymous), code: 403},
		"a name with outer spaces":      {certificate: named(clients, "root "), code: 403},
		"a name with a line end":        {certificate: named(clients, "a\r\nImpersonate-Group: system:masters"), code: 403},
		"a group with a line end":       {certificate: named(clients, "a", "b\nc"), code: 403},
		"an empty group":                {certificate: named(clients, "a", ""), code: 403},
		"a certificate without a CA":    {certificate: alice, withoutCA: true},
		"headers without a certificate": {header: says("X-Remote-User", "bob", "x-remote-extra-a", "b")},
		"headers and a token":           {header: says("X-Remote-User", "bob", "Authorization", "Bearer t"), token: true},
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
			if code != test.code {
				t.Fatalf("refused with %d, not %d", code, test.code)
			}
			impersonated := ""
			if id.Impersonated() != nil {
				impersonated = id.Impersonated().Name + " [" + strings.Join(id.Impersonated().Groups, " ") + "]"
			}
			if impersonated != test.user {
				t.Errorf("impersonated is %q, not %q", impersonated, test.user)
			}
			expect.Same(t, []bool{test.token, test.token || test.other, test.token || test.other || test.user != ""},
				[]bool{id.BringsToken(), id.authorization != nil, id.Known()})
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
	for name, test := range map[string]struct {
		shown    []*x509.Certificate
		believed bool
	}{
		"the CA's own":         {[]*x509.Certificate{alice(ca)}, true},
		"in order":             {[]*x509.Certificate{alice(second), second.Cert, first.Cert}, true},
		"the other way round":  {[]*x509.Certificate{alice(second), first.Cert, second.Cert}, true},
		"with the CA, five":    {[]*x509.Certificate{alice(third), third.Cert, second.Cert, first.Cert, ca.Cert}, true},
		"six":                  {[]*x509.Certificate{alice(fourth), fourth.Cert, third.Cert, second.Cert, first.Cert, ca.Cert}, false},
		"two of one name":      {[]*x509.Certificate{alice(first), again.Cert, first.Cert}, false},
		"one is missing":       {[]*x509.Certificate{alice(second), second.Cert}, false},
		"from nowhere":         {[]*x509.Certificate{alice(foreign), foreign.Cert}, false},
		"signed by a client":   {[]*x509.Certificate{alice(&proxytest.CA{Cert: alice(second), Key: second.Key}), second.Cert, first.Cert}, false},
		"the name of a client": {[]*x509.Certificate{alice(foreign), alice(ca)}, false},
	} {
		id, refusal := i.Authenticate(proxytest.RequestBy(test.shown...))
		if believed := refusal == nil && id.Impersonated() != nil; believed != test.believed || !believed && refusal.Code != http.StatusUnauthorized {
			t.Errorf("%s: %v", name, refusal)
		}
		r := proxytest.RequestBy(test.shown...)
		r.Header.Set("Authorization", "Bearer t")
		id, refusal = i.Authenticate(r)
		if refusal != nil || (id.Impersonated() != nil) != test.believed || id.BringsToken() == test.believed {
			t.Errorf("%s, with a token: %v", name, refusal)
		}
	}
}
