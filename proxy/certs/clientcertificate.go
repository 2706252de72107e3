package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxChain is how many certificates a client may show: its own, and those up to a CA.
// kube-apiserver has no such bound.
const maxChain = 10

// maxUnsigned is how many of the certificates between a client's own and a CA may name a trusted
// issuer that has not signed them; further ones are not used. A few can come from another CA of the
// same name, but each costs the check of a signature. kube-apiserver has no such bound.
const maxUnsigned = 3

// maxRefusal is how long a refusal is remembered for a connection: the clock may be set, or a CA
// become valid.
const maxRefusal = time.Minute

var errLongChain = errors.New("the client shows more certificates than there are in any chain")

// ChainVerifier verifies the certificates of clients against one set of CAs, as kube-apiserver
// does, and remembers for a connection what it has found: a connection's certificates do not
// change.
type ChainVerifier struct {
	options VerifyOptions
	// verify is [verifyChain]; tests replace it.
	verify func(certificates []*x509.Certificate, options x509.VerifyOptions) ([]*x509.Certificate, error)
}

// NewChainVerifier returns a verifier that has verified nothing yet.
func NewChainVerifier(options VerifyOptions) *ChainVerifier {
	return &ChainVerifier{options, verifyChain}
}

// verifiedChains are the results of one connection. The zero value is ready for use, and safe for
// concurrent use.
type verifiedChains struct {
	mu sync.Mutex
	of map[*ChainVerifier]verifiedChain
}

// connectionKey is the key of a connection's *verifiedChains in the contexts of its requests.
type connectionKey struct{}

// WithConnection returns the context of a connection, for which a [ChainVerifier] remembers what
// it has found.
func WithConnection(ctx context.Context) context.Context {
	return context.WithValue(ctx, connectionKey{}, &verifiedChains{})
}

// verifiedChain is the result of a check against roots. It is valid until the first certificate of
// a good chain ends or, for a refusal, until a certificate may have become valid.
type verifiedChain struct {
	roots *x509.CertPool
	chain []*x509.Certificate
	err   error
	until time.Time
}

// Chain returns the chain from the client's certificate to a CA; nil without an error if there is
// nothing to verify.
func (v *ChainVerifier) Chain(r *http.Request) ([]*x509.Certificate, error) {
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
	c, ok := r.Context().Value(connectionKey{}).(*verifiedChains)
	if !ok {
		return v.verify(shown, options)
	}
	c.mu.Lock() // also while verifying: the requests of a connection want the same
	defer c.mu.Unlock()
	// A file of CAs that was read again gives another pool.
	if known, ok := c.of[v]; ok && known.roots == options.Roots && !time.Now().After(known.until) {
		return known.chain, known.err
	}
	found := verifiedChain{roots: options.Roots}
	if found.chain, found.err = v.verify(shown, options); found.err != nil {
		found.until = firstStart(shown, time.Now())
	} else {
		found.until = firstEnd(found.chain)
	}
	if c.of == nil {
		c.of = map[*ChainVerifier]verifiedChain{}
	}
	c.of[v] = found
	return found.chain, found.err
}

// firstStart returns until when a refusal is valid: until the first of the certificates that are
// not valid yet begins to be, at most for maxRefusal.
func firstStart(refused []*x509.Certificate, now time.Time) time.Time {
	until := now.Add(maxRefusal)
	for _, c := range refused {
		if before := c.NotBefore.Add(-1); !before.Before(now) && before.Before(until) {
			until = before
		}
	}
	return until
}

// verifyChain verifies the first certificate with the help of those others that lead to a CA.
// Signatures are checked from the CA downwards, so certificates that a client made up are never
// used to check others. (x509 would check up to a hundred signatures of certificates that sign each
// other.) Of certificates that name a CA as their issuer without being signed by it, only a few are
// checked ([maxUnsigned]).
func verifyChain(certificates []*x509.Certificate, options x509.VerifyOptions) ([]*x509.Certificate, error) {
	if options.Intermediates == nil {
		options.Intermediates = x509.NewCertPool()
		between := options
		between.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
		rest, unsigned := slices.Clone(certificates[1:]), 0
		//nolint:staticcheck // SA1019: it misses the system's CAs, which are never among these
		for issuers := options.Roots.Subjects(); len(issuers) > 0; {
			var next [][]byte
			rest = slices.DeleteFunc(rest, func(c *x509.Certificate) bool {
				named := func(issuer []byte) bool { return bytes.Equal(issuer, c.RawIssuer) }
				if unsigned == maxUnsigned || !slices.ContainsFunc(issuers, named) {
					return false
				}
				if _, err := c.Verify(between); err != nil {
					unsigned++
					return false
				}
				options.Intermediates.AddCert(c)
				next = append(next, c.RawSubject)
				return true
			})
			issuers = next
		}
	}
	chains, err := certificates[0].Verify(options)
	if err != nil {
		return nil, err
	}
	return chains[0], nil
}

// VerifyOptions returns how client certificates are verified now. Not ok means that no certificate
// is accepted. It must be safe for concurrent use.
type VerifyOptions func() (options x509.VerifyOptions, ok bool)
