package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/test/expect"
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

// verifier counts how often a chain is verified.
func (c *chained) verifier() *ChainVerifier {
	v := NewChainVerifier(c.options)
	v.verify = func(certificates []*x509.Certificate, options x509.VerifyOptions) ([]*x509.Certificate, error) {
		c.verified++
		return verifyChain(certificates, options)
	}
	return v
}

// TestChainIsVerifiedOnce for a connection and a set of CAs, and not believed after its end.
func TestChainIsVerifiedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChained(t)
		verifier := c.verifier()
		certificate := c.ca.Issue(t, pkix.Name{CommonName: "alice"}, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Minute) })
		conn, other := WithConnection(t.Context()), WithConnection(t.Context())
		is := func(what string, conn context.Context, believed bool, verified int) {
			t.Helper()
			chain, err := verifier.Chain(proxytest.RequestBy(conn, certificate))
			if (err == nil) != believed || (chain != nil) != believed || c.verified != verified {
				t.Errorf("%s: %d certificates, %v; verified %d times, want %d", what, len(chain), err, c.verified, verified)
			}
		}
		is("the first request", conn, true, 1)
		is("the second", conn, true, 1)
		is("another connection", other, true, 2)
		c.reload()
		is("after the CAs were read again", conn, true, 3)
		is("and again", conn, true, 3)
		known := c.roots
		c.roots = x509.NewCertPool()
		is("without the CA", conn, false, 4)
		c.roots = known
		is("with the CA again", conn, true, 5)
		time.Sleep(time.Minute)
		is("in its last second", conn, true, 5)
		time.Sleep(time.Second)
		is("after its end", conn, false, 6)
		is("later", conn, false, 6)
		is("on another connection", other, false, 7)
	})
}

// TestRefusedChainIsRemembered as long as it cannot be right: each verification checks signatures
// before anybody is admitted.
func TestRefusedChainIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChained(t)
		verifier := c.verifier()
		soon := c.ca.Issue(t, pkix.Name{CommonName: "alice"}, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(10*time.Minute), time.Now().Add(time.Hour)
		})
		is := func(what string, r *http.Request, believed bool, verified int) {
			t.Helper()
			if _, err := verifier.Chain(r); (err == nil) != believed || c.verified != verified {
				t.Errorf("%s: %v, want %t; verified %d times, want %d", what, err, believed, c.verified, verified)
			}
		}
		forged, conn := c.ca.Naming(t, maxChain), WithConnection(t.Context())
		is("the first request", proxytest.RequestBy(conn, forged...), false, 1)
		for range 100 {
			is("one more", proxytest.RequestBy(conn, forged...), false, 1)
		}
		c.reload()
		is("after the CAs were read again", proxytest.RequestBy(conn, forged...), false, 2)
		time.Sleep(maxRefusal)
		is("after a minute", proxytest.RequestBy(conn, forged...), false, 2)
		time.Sleep(time.Nanosecond)
		is("and later", proxytest.RequestBy(conn, forged...), false, 3)

		conn = WithConnection(t.Context())
		time.Sleep(time.Until(soon.NotBefore) - time.Second)
		c.verified = 0
		is("before it is valid", proxytest.RequestBy(conn, soon), false, 1)
		time.Sleep(time.Second - 1)
		is("right before", proxytest.RequestBy(conn, soon), false, 1)
		time.Sleep(time.Nanosecond)
		is("when it is", proxytest.RequestBy(conn, soon), true, 2)
		is("and later", proxytest.RequestBy(conn, soon), true, 2)
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
	verifier := c.verifier()
	certificate := c.ca.Issue(t, pkix.Name{CommonName: "alice"}, nil)
	long := slices.Repeat([]*x509.Certificate{certificate}, maxChain+1)
	conn := WithConnection(t.Context())
	if _, err := verifier.Chain(proxytest.RequestBy(conn, long...)); err == nil || c.verified != 0 {
		t.Errorf("%v, verified %d times", err, c.verified)
	}
	if chain, err := verifier.Chain(proxytest.RequestBy(conn, long[:maxChain]...)); err != nil || chain == nil {
		t.Errorf("as many as there may be: %v", err)
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
	expect.NoError(b, err)
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
			expect.NoError(b, err)
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
