package proxytest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// CA signs client certificates.
type CA struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// NewCA returns a self-signed CA, valid from an hour ago for two hours.
func NewCA(t testing.TB) *CA {
	t.Helper()
	return newCA(t, "clients", nil)
}

// Intermediate returns a CA that ca signs.
func (ca *CA) Intermediate(t testing.TB, name string) *CA {
	t.Helper()
	return newCA(t, name, ca)
}

// newCA returns a CA that signer signs. If signer is nil, the CA signs itself.
func newCA(t testing.TB, name string, signer *CA) *CA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	ca := &CA{Key: key}
	if signer == nil {
		signer = ca
	}
	ca.Cert = signer.sign(t, key, pkix.Name{CommonName: name}, func(c *x509.Certificate) {
		c.IsCA = true
		c.BasicConstraintsValid = true
		c.KeyUsage = x509.KeyUsageCertSign
		c.ExtKeyUsage = nil
	})
	return ca
}

// Issue returns a client certificate for the CA's own key. edit, if not nil, changes the certificate before it is signed.
func (ca *CA) Issue(t testing.TB, subject pkix.Name, edit func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	return ca.sign(t, ca.Key, subject, edit)
}

// sign returns a client certificate for key. edit, if not nil, changes the certificate before it is signed. If ca has no
// certificate yet, the new certificate is self-signed.
func (ca *CA) sign(t testing.TB, key *ecdsa.PrivateKey, subject pkix.Name, edit func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if edit != nil {
		edit(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, cmp.Or(ca.Cert, template), key.Public(), ca.Key)
	expect.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	expect.NoError(t, err)
	return cert
}

// Options returns options that accept client certificates of this CA only.
func (ca *CA) Options() (x509.VerifyOptions, bool) {
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	return x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

// RequestBy returns a request on a connection whose client has sent these certificates.
func RequestBy(certificates ...*x509.Certificate) *http.Request {
	return &http.Request{Header: http.Header{}, TLS: &tls.ConnectionState{PeerCertificates: certificates}}
}
