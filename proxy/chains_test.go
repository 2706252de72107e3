package proxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"math/big"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// chained is a CA of clients, and what the chains of its clients are verified with.
type chained struct {
	ca       *proxytest.CA
	roots    *x509.CertPool
	verified int
}

func newChained(t testing.TB) *chained {
	c := &chained{ca: proxytest.NewCA(t)}
	c.reload()
	return c
}

// reload makes another pool of the same CA, as reading its file again does.
func (c *chained) reload() {
	options, _ := c.ca.Options()
	c.roots = options.Roots
}

func (c *chained) options() (x509.VerifyOptions, bool) {
	return x509.VerifyOptions{Roots: c.roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

// identifier counts how often a chain is verified.
func (c *chained) identifier(t testing.TB) *Identifier {
	t.Helper()
	i, err := NewIdentifier(IdentifierConfig{ClientCA: c.options})
	if err != nil {
		t.Fatal(err)
	}
	i.clientChains.verify = func(certificates []*x509.Certificate, options x509.VerifyOptions) ([]*x509.Certificate, error) {
		c.verified++
		return verifyChain(certificates, options)
	}
	return i
}

// by is a request on a connection that has shown certificates.
func by(conn context.Context, certificates ...*x509.Certificate) *http.Request {
	r := &http.Request{Header: http.Header{}, TLS: &tls.ConnectionState{PeerCertificates: certificates}}
	return r.WithContext(conn)
}

// TestChainIsVerifiedOnce for a connection and a set of CAs, and not believed after its end.
func TestChainIsVerifiedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChained(t)
		identifier := c.identifier(t)
		certificate := c.ca.Issue(t, pkix.Name{CommonName: "alice"}, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Minute) })
		conn, other := withConnection(t.Context(), nil), withConnection(t.Context(), nil)
		is := func(what string, conn context.Context, code, verified int) {
			t.Helper()
			id, refusal := identifier.Identify(by(conn, certificate))
			got := 0
			if refusal != nil {
				got = refusal.Code
			}
			if got != code || (id.stated != nil) != (code == 0) || c.verified != verified {
				t.Errorf("%s: %d, %v; verified %d times, want %d", what, got, id.stated != nil, c.verified, verified)
			}
		}
		is("the first request", conn, 0, 1)
		is("the second", conn, 0, 1)
		is("another connection", other, 0, 2)
		c.reload()
		is("after the CAs were read again", conn, 0, 3)
		is("and again", conn, 0, 3)
		known := c.roots
		c.roots = x509.NewCertPool()
		is("without the CA", conn, http.StatusUnauthorized, 4)
		c.roots = known
		is("with the CA again", conn, 0, 5)
		time.Sleep(time.Minute)
		is("in its last second", conn, 0, 5)
		time.Sleep(time.Second)
		is("after its end", conn, http.StatusUnauthorized, 6)
		is("later", conn, http.StatusUnauthorized, 6)
		is("on another connection", other, http.StatusUnauthorized, 7)
	})
}

// TestRefusedChainIsRemembered as long as it cannot be right: each verification checks signatures before anybody is
// admitted.
func TestRefusedChainIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChained(t)
		identifier := c.identifier(t)
		soon := c.ca.Issue(t, pkix.Name{CommonName: "alice"}, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(10*time.Minute), time.Now().Add(time.Hour)
		})
		is := func(what string, r *http.Request, code, verified int) {
			t.Helper()
			got := 0
			if _, refusal := identifier.Identify(r); refusal != nil {
				got = refusal.Code
			}
			if got != code || c.verified != verified {
				t.Errorf("%s: %d, want %d; verified %d times, want %d", what, got, code, c.verified, verified)
			}
		}
		forged, conn := c.ca.Naming(t, maxChain), withConnection(t.Context(), nil)
		is("the first request", by(conn, forged...), http.StatusUnauthorized, 1)
		for range 100 {
			is("one more", by(conn, forged...), http.StatusUnauthorized, 1)
		}
		withToken := by(conn, forged...)
		withToken.Header.Set("Authorization", "Bearer t")
		is("with a token", withToken, 0, 1)
		c.reload()
		is("after the CAs were read again", by(conn, forged...), http.StatusUnauthorized, 2)
		time.Sleep(maxRefusal)
		is("after a minute", by(conn, forged...), http.StatusUnauthorized, 2)
		time.Sleep(time.Nanosecond)
		is("and later", by(conn, forged...), http.StatusUnauthorized, 3)

		conn = withConnection(t.Context(), nil)
		time.Sleep(time.Until(soon.NotBefore) - time.Second)
		c.verified = 0
		is("before it is valid", by(conn, soon), http.StatusUnauthorized, 1)
		time.Sleep(time.Second - 1)
		is("right before", by(conn, soon), http.StatusUnauthorized, 1)
		time.Sleep(time.Nanosecond)
		is("when it is", by(conn, soon), 0, 2)
		is("and later", by(conn, soon), 0, 2)
	})
}

// TestUnsignedIntermediates: some that only name a CA are passed over, but not many are looked at.
func TestUnsignedIntermediates(t *testing.T) {
	c := newChained(t)
	intermediate := c.ca.Intermediate(t, "first")
	leaf := intermediate.Issue(t, pkix.Name{CommonName: "alice"}, nil)
	for unsigned, believed := range map[int]bool{0: true, maxUnsigned - 1: true, maxUnsigned: false, maxChain - 2: false} {
		shown := append([]*x509.Certificate{leaf}, c.ca.Naming(t, unsigned)...)
		options, _ := c.options()
		if _, err := verifyChain(append(shown, intermediate.Cert), options); (err == nil) != believed {
			t.Errorf("behind %d that are unsigned: %v", unsigned, err)
		}
		shown[0] = c.ca.Issue(t, pkix.Name{CommonName: "alice"}, nil)
		if _, err := verifyChain(shown, options); err != nil {
			t.Errorf("of the CA itself, with %d that are unsigned: %v", unsigned, err)
		}
	}
}

// TestLongChain: more certificates than there are in any chain are no certificate.
func TestLongChain(t *testing.T) {
	c := newChained(t)
	identifier := c.identifier(t)
	certificate := c.ca.Issue(t, pkix.Name{CommonName: "alice"}, nil)
	long := slices.Repeat([]*x509.Certificate{certificate}, maxChain+1)
	conn := withConnection(t.Context(), nil)
	if _, refusal := identifier.Identify(by(conn, long...)); refusal == nil || refusal.Code != http.StatusUnauthorized || c.verified != 0 {
		t.Errorf("%v, verified %d times", refusal, c.verified)
	}
	r := by(conn, long...)
	r.Header.Set("Authorization", "Bearer t")
	if id, refusal := identifier.Identify(r); refusal != nil || id.stated != nil || !id.bringsToken() {
		t.Errorf("with a token: %v", refusal)
	}
	if id, refusal := identifier.Identify(by(conn, long[:maxChain]...)); refusal != nil || id.stated == nil {
		t.Errorf("as many as there may be: %v", refusal)
	}
}

// TestChainOfIntermediates: what leads to a CA is used, in any order, and as x509 itself decides.
func TestChainOfIntermediates(t *testing.T) {
	c := newChained(t)
	first := c.ca.Intermediate(t, "first")
	second := first.Intermediate(t, "second")
	leaf := second.Issue(t, pkix.Name{CommonName: "alice"}, nil)
	foreign := proxytest.NewCA(t)
	other := foreign.Intermediate(t, "first")
	for name, shown := range map[string][]*x509.Certificate{
		"in order":            {leaf, second.Cert, first.Cert},
		"the other way round": {leaf, first.Cert, second.Cert},
		"with the CA":         {leaf, second.Cert, first.Cert, c.ca.Cert},
		"with others":         {leaf, other.Cert, foreign.Cert, first.Cert, second.Cert},
		"one is missing":      {leaf, second.Cert},
		"another's":           {leaf, second.Cert, other.Cert},
		"alone":               {leaf},
		"of the CA itself":    {c.ca.Issue(t, pkix.Name{CommonName: "bob"}, nil)},
		"for servers": {second.Issue(t, pkix.Name{CommonName: "alice"}, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), second.Cert, first.Cert},
		"signed by a client": {(&proxytest.CA{Cert: leaf, Key: second.Key}).Issue(t, pkix.Name{CommonName: "mallory"}, nil), leaf, second.Cert, first.Cert},
	} {
		options, _ := c.options()
		chain, err := verifyChain(shown, options)
		options.Intermediates = x509.NewCertPool()
		for _, certificate := range shown[1:] {
			options.Intermediates.AddCert(certificate)
		}
		_, want := shown[0].Verify(options)
		if (err == nil) != (want == nil) || err == nil && chain[0] != shown[0] {
			t.Errorf("%s: %v, x509 says %v", name, err, want)
		}
	}
}

// BenchmarkForeignChain: certificates that sign each other and lead to no CA.
func BenchmarkForeignChain(b *testing.B) {
	c := newChained(b)
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "mesh"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, n := range []int{99, maxChain} {
		var mesh []*x509.Certificate
		for i := range n {
			template.SerialNumber = big.NewInt(int64(i + 1))
			template.Subject.OrganizationalUnit = nil
			another, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
			if err != nil {
				b.Fatal(err)
			}
			// The same name, and mostly another key: each may have signed each.
			mesh = append(mesh, proxytest.Sign(b, template, template, another, key))
		}
		options, _ := c.options()
		b.Run(fmt.Sprintf("x509/%d", n), func(b *testing.B) {
			all := options
			all.Intermediates = x509.NewCertPool()
			for _, certificate := range mesh[1:] {
				all.Intermediates.AddCert(certificate)
			}
			for b.Loop() {
				if _, err := mesh[0].Verify(all); err == nil {
					b.Fatal("verified")
				}
			}
		})
		b.Run(fmt.Sprintf("downwards/%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := verifyChain(mesh, options); err == nil {
					b.Fatal("verified")
				}
			}
		})
	}
}
