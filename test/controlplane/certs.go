package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/listproxy/listproxy/test/harness/secrets"
)

// Certificates outlive any test and most demos; the margin before now is for odd clocks.
const (
	certValidity = 7 * 24 * time.Hour
	certMargin   = time.Hour
)

// An Authority is a CA that issues certificates as a test wants them: the control plane's own, or one that
// nobody trusts. It lives in memory only.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes a CA of that name.
func NewAuthority(commonName string) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	cert := template(pkix.Name{CommonName: commonName})
	cert.IsCA, cert.BasicConstraintsValid, cert.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err = x509.ParseCertificate(der)
	return &Authority{cert, key}, err
}

// PEM is the CA's certificate.
func (a *Authority) PEM() []byte { return certPEM(a.cert.Raw) }

// Name is the CA's subject.
func (a *Authority) Name() string { return a.cert.Subject.CommonName }

// Issue makes a client certificate and its key, both in PEM. kube-apiserver reads the user's name from
// the common name, and groups from the organisations. What with changes before the certificate is
// signed is as it wants: that it has expired, say. With may be nil.
func (a *Authority) Issue(subject pkix.Name, with func(*x509.Certificate)) (cert, key []byte, err error) {
	private, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	wanted := template(subject)
	wanted.KeyUsage, wanted.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if with != nil {
		with(wanted)
	}
	der, err := x509.CreateCertificate(rand.Reader, wanted, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(private); err != nil {
		return nil, nil, err
	}
	secrets.Suite.AddKey("the key of "+subject.CommonName, key)
	return certPEM(der), key, nil
}

// serving issues a server certificate for names, for this machine's loopback address, and for that of the Service
// kubernetes.
func (a *Authority) serving(names ...string) (cert, key []byte, err error) {
	return a.Issue(pkix.Name{CommonName: names[0]}, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		c.DNSNames, c.IPAddresses = names, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)}
	})
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func template(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{Subject: subject, NotBefore: now.Add(-certMargin), NotAfter: now.Add(certValidity)}
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
