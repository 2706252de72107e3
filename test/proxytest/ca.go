package proxytest

import (
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

// NewCA returns a CA of its own, valid for an hour around now.
func NewCA(t testing.TB) *CA {
	t.Helper()
	return newCA(t, "clients", nil)
}

// Intermediate is a CA that another signs.
func (ca *CA) Intermediate(t testing.TB, name string) *CA {
	t.Helper()
	return newCA(t, name, ca)
}

// newCA returns a CA that another signs, or itself.
func newCA(t testing.TB, name string, by *CA) *CA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if by == nil {
		by = &CA{Cert: template, Key: key}
	}
	return &CA{Cert: Sign(t, template, by.Cert, key, by.Key), Key: key}
}

// Sign returns template as a certificate of key, signed by parent with by.
func Sign(t testing.TB, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	expect.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	expect.NoError(t, err)
	return cert
}

// Issue returns a client certificate, changed by with.
func (ca *CA) Issue(t testing.TB, subject pkix.Name, with func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if with != nil {
		with(template)
	}
	return Sign(t, template, ca.Cert, ca.Key, ca.Key)
}

// Options verify client certificates of this CA alone.
func (ca *CA) Options() (x509.VerifyOptions, bool) {
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	return x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

// RequestBy is a request on a connection that has shown certificates.
func RequestBy(certificates ...*x509.Certificate) *http.Request {
	return &http.Request{Header: http.Header{}, TLS: &tls.ConnectionState{PeerCertificates: certificates}}
}
