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

// Certificates are valid for longer than any test and most demos. certMargin allows for clocks that are behind.
const (
	certValidity = 7 * 24 * time.Hour
	certMargin   = time.Hour
)

// An Authority is a CA whose certificates a test can modify: the control plane's, or one that
// nobody trusts. Its key is in memory only.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns a new CA.
func NewAuthority(commonName string) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	cert := template(pkix.Name{CommonName: commonName})
	cert.IsCA, cert.BasicConstraintsValid = true, true
	cert.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err = x509.ParseCertificate(der)
	return &Authority{cert, key}, err
}

// PEM returns the CA's certificate.
func (a *Authority) PEM() []byte { return certPEM(a.cert.Raw) }

// Name returns the common name of the CA.
func (a *Authority) Name() string { return a.cert.Subject.CommonName }

// Issue issues a client certificate and its key, both in PEM. kube-apiserver reads the user's name from the common name, and
// groups from the organizations. modify, which may be nil, changes the certificate before it is signed, for example to an
// expired one.
func (a *Authority) Issue(subject pkix.Name, modify func(*x509.Certificate)) (cert, key []byte, err error) {
	private, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	unsigned := template(subject)
	unsigned.KeyUsage, unsigned.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if modify != nil {
		modify(unsigned)
	}
	der, err := x509.CreateCertificate(rand.Reader, unsigned, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(private); err != nil {
		return nil, nil, err
	}
	secrets.Suite.AddKey("the key of "+subject.CommonName, key)
	return certPEM(der), key, nil
}

// issueServing issues a serving certificate for host names, the loopback address, and the address of the Service kubernetes.
func (a *Authority) issueServing(names ...string) (cert, key []byte, err error) {
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
