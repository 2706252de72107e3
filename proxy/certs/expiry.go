package certs

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"k8s.io/client-go/util/cert"
)

// Expiry says when a certificate in use ends; for a chain, or a file with several CAs, when the
// first of them ends.
type Expiry struct {
	// Name is "serving", "tunnel", or that of the flag for CAs, "client-ca".
	Name     string
	NotAfter time.Time
}

// Expiry says when the certificate that clients are shown now ends, or one above it that is shown
// with it.
func (c *Certificate) Expiry() Expiry {
	return Expiry{c.purpose, firstEnd(chainOf(c.current.Load()))}
}

// chainOf parses the chain again. It was parsed when it was loaded, so errors are left out.
func chainOf(pair *tls.Certificate) []*x509.Certificate {
	chain := make([]*x509.Certificate, 0, len(pair.Certificate))
	for _, der := range pair.Certificate {
		if certificate, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, certificate)
		}
	}
	return chain
}

// Expiry says when the first of the CAs in the file ends, as it was last read.
func (c *ClientCA) Expiry() Expiry {
	cas, err := cert.ParseCertsPEM(c.content.CurrentCABundleContent())
	if err != nil {
		cas = nil // it was parsed when it was read
	}
	return Expiry{c.name, firstEnd(cas)}
}

func firstEnd(certificates []*x509.Certificate) time.Time {
	var first time.Time
	for _, c := range certificates {
		if first.IsZero() || c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	return first
}
