package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Certificates outlive any test and most demos; the margin before now is for odd clocks.
const (
	certValidity = 7 * 24 * time.Hour
	certMargin   = time.Hour
)

// A certificate authority that lives in memory only.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// A keyPair is a certificate and its key, in PEM.
type keyPair struct{ cert, key []byte }

func newAuthority(commonName string) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(pkix.Name{CommonName: commonName})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create the certificate authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("create the certificate authority: %w", err)
	}
	return &authority{cert: cert, key: key, pem: certPEM(der)}, nil
}

// serving issues a server certificate for names, and for this machine's loopback address.
func (a *authority) serving(names ...string) (keyPair, error) {
	return a.issue(pkix.Name{CommonName: names[0]}, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		c.DNSNames = names
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	})
}

// client issues a client certificate. kube-apiserver reads the user's name from the common
// name and the groups from the organisations.
func (a *authority) client(user string, groups ...string) (keyPair, error) {
	return a.issue(pkix.Name{CommonName: user, Organization: groups}, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	})
}

func (a *authority) issue(name pkix.Name, with func(*x509.Certificate)) (keyPair, error) {
	key, err := newKey()
	if err != nil {
		return keyPair{}, err
	}
	template, err := newTemplate(name)
	if err != nil {
		return keyPair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	with(template)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("issue a certificate for %s: %w", name.CommonName, err)
	}
	keyBytes, err := keyPEM(key)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{cert: certPEM(der), key: keyBytes}, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}
	return key, nil
}

func newTemplate(name pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("choose a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      name,
		NotBefore:    now.Add(-certMargin),
		NotAfter:     now.Add(certValidity),
	}, nil
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
