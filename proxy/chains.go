package proxy

import (
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxChain is how many certificates a client may show: its own, and those up to a CA. kube-apiserver has no
// such bound.
const maxChain = 10

var errLongChain = errors.New("the client shows more certificates than there are in any chain")

// chainVerifier verifies the certificates of clients against one set of CAs, as kube-apiserver does, and
// remembers for a connection what it has found: a connection's certificates do not change.
type chainVerifier struct {
	options VerifyOptions
	// verify is [verifyChain], but for tests.
	verify func(certificates []*x509.Certificate, options x509.VerifyOptions) ([]*x509.Certificate, error)
}

func newChainVerifier(options VerifyOptions) *chainVerifier {
	return &chainVerifier{options, verifyChain}
}

// verifiedChains are those of one connection. The zero value is ready for use, by many at a time.
type verifiedChains struct {
	mu sync.Mutex
	of map[*chainVerifier]verifiedChain
}

// verifiedChain was found good against roots, and is until a certificate in it ends.
type verifiedChain struct {
	roots *x509.CertPool
	chain []*x509.Certificate
	until time.Time
}

// chain returns the chain from the client's certificate to a CA; nil without an error if there is nothing
// to verify.
func (v *chainVerifier) chain(r *http.Request) ([]*x509.Certificate, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	options, ok := v.options()
	if !ok {
		return nil, nil
	}
	shown := r.TLS.PeerCertificates
	if len(shown) > maxChain {
		return nil, errLongChain
	}
	c := connectionOf(r.Context())
	if c == nil {
		return v.verify(shown, options)
	}
	c.chains.mu.Lock() // also while verifying: the requests of a connection want the same
	defer c.chains.mu.Unlock()
	// A file of CAs that was read again gives another pool.
	if known, ok := c.chains.of[v]; ok && known.roots == options.Roots && !time.Now().After(known.until) {
		return known.chain, nil
	}
	chain, err := v.verify(shown, options)
	if err != nil {
		delete(c.chains.of, v)
		return nil, err
	}
	if c.chains.of == nil {
		c.chains.of = map[*chainVerifier]verifiedChain{}
	}
	c.chains.of[v] = verifiedChain{roots: options.Roots, chain: chain, until: firstEnd(chain)}
	return chain, nil
}

// verifyChain verifies the first certificate with the help of those others that lead to a CA. Signatures are
// checked from the CA downwards, so a stranger's own certificates are never used to check others. (x509 would
// check up to a hundred signatures of certificates that sign each other.)
func verifyChain(certificates []*x509.Certificate, options x509.VerifyOptions) ([]*x509.Certificate, error) {
	rest := slices.Clone(certificates[1:])
	if options.Intermediates == nil {
		options.Intermediates = x509.NewCertPool()
		between := options
		between.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
		for found := true; found; {
			found = false
			rest = slices.DeleteFunc(rest, func(c *x509.Certificate) bool {
				if _, err := c.Verify(between); err != nil {
					return false
				}
				options.Intermediates.AddCert(c)
				found = true
				return true
			})
		}
	}
	chains, err := certificates[0].Verify(options)
	if err != nil {
		return nil, err
	}
	return chains[0], nil
}
