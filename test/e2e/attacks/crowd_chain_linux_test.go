package attacks

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// chainLength is how many certificates a client shows: crypto/x509 gives up after a hundred
// signatures.
const chainLength = 99

// mostVerified is how many certificates listproxy looks at.
const mostVerified = 5

// newChain makes a chain of certificates, each signed by the next one, of which nobody knows the
// last.
func newChain(t *testing.T, length int) tls.Certificate {
	t.Helper()
	var chain tls.Certificate
	made := make([][]byte, length)
	var parent *x509.Certificate
	var signer *ecdsa.PrivateKey
	for i := length - 1; i >= 0; i-- {
		key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
		expect.NoError(t, err)
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: fmt.Sprintf("link %d", i)},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IsCA: i > 0, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		by, with := template, key
		if parent != nil {
			by, with = parent, signer
		}
		der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), with)
		expect.NoError(t, err)
		if parent, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		made[i], signer = der, key
	}
	chain.Certificate, chain.PrivateKey = made, signer
	return chain
}

// showing makes a client show a certificate.
func showing(chain tls.Certificate) func(*tls.Config) {
	return func(c *tls.Config) {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &chain, nil }
	}
}

// chains opens connections, one after the other in each of two goroutines, and asks once on each.
func chains(chain tls.Certificate) crowdAttack {
	return func(ctx context.Context, s *side, ready func()) pressed {
		const atOnce = 2
		var (
			counts tally
			all    sync.WaitGroup
		)
		ready()
		for range atOnce {
			all.Go(func() {
				for ctx.Err() == nil {
					counts.begin()
					counts.end(s.chained(ctx, chain, 1))
				}
			})
		}
		all.Wait()
		return counts.pressed()
	}
}

// chained opens a connection that shows a chain, if it is not empty, and asks so often on it.
func (s *side) chained(ctx context.Context, chain tls.Certificate, often int) (said string) {
	var show func(*tls.Config)
	if len(chain.Certificate) > 0 {
		show = showing(chain)
	}
	client := s.client(crowdAddress, show)
	defer client.CloseIdleConnections()
	for range often {
		res, err := s.open(ctx, client, "", "/version")
		if err != nil {
			return "no answer"
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		said = fmt.Sprint(res.StatusCode)
	}
	return said
}

// price is what CPU time some connections cost the side, each, with so many requests on each.
func (s *side) price(chain tls.Certificate, connections, often int) time.Duration {
	s.Helper()
	before := s.used()
	for range connections {
		s.chained(s.Context(), chain, often)
	}
	return (s.used() - before) / time.Duration(connections)
}

// testChains is for make attacks, since it measures CPU time: to verify a long chain takes this
// process much, and takes listproxy a small part of that. In make test proxy/authn says what is
// verified.
func testChains(t *testing.T, r *crowdRig, c crowding, chain tls.Certificate, tables *crowdTables) {
	t.Helper()
	whole := verifying(t, chain)
	const connections, requests = 10, 5
	for _, s := range []*side{r.through(t, c), r.directly(t)} {
		s.chained(t.Context(), tls.Certificate{}, 1) // what happens once
		without := s.price(tls.Certificate{}, connections, 1)
		if said := s.chained(t.Context(), chain, 1); said != strconv.Itoa(http.StatusUnauthorized) {
			t.Errorf("a chain that leads to no CA: %s", said)
		}
		one := s.price(chain, connections, 1)
		more := (s.price(chain, 2, requests) - one) / (requests - 1)
		tables.chain(s.name(), len(chain.Certificate), without, one, more, whole)
		if s.proxy == nil || len(chain.Certificate) <= mostVerified {
			continue
		}
		if one-without > whole/2 {
			t.Errorf("a connection with a chain of %d certificates costs %v, one without %v; to verify the chain costs %v",
				len(chain.Certificate), one, without, whole)
		}
		if more > whole/4 {
			t.Errorf("each further request on it costs %v", more)
		}
	}
}

// verifying is what it takes this process to verify a chain.
func verifying(t *testing.T, chain tls.Certificate) time.Duration {
	t.Helper()
	options := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}
	var leaf *x509.Certificate
	for i, der := range chain.Certificate {
		c, err := x509.ParseCertificate(der)
		expect.NoError(t, err)
		if i == 0 {
			leaf = c
			continue
		}
		options.Intermediates.AddCert(c)
	}
	const times = 3
	before := ownCPU(t)
	for range times {
		if _, err := leaf.Verify(options); err == nil {
			t.Fatal("the chain is believed")
		}
	}
	return (ownCPU(t) - before) / times
}

// ownCPU is what this process has used.
func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	expect.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
