package controlplane

import (
	"crypto/x509"
	"crypto/x509/pkix"

	"github.com/listproxy/listproxy/test/harness/secrets"
)

// An Authority is a CA that issues client certificates as a test wants them: the control plane's
// own, or one that nobody trusts.
type Authority struct{ own *authority }

// NewAuthority makes a CA of that name. It lives in memory only.
func NewAuthority(commonName string) (*Authority, error) {
	own, err := newAuthority(commonName)
	if err != nil {
		return nil, err
	}
	return &Authority{own}, nil
}

// ClientAuthority is the CA whose certificates the API server knows users by.
func (cp *ControlPlane) ClientAuthority() *Authority { return &Authority{cp.credentials.issuer} }

// PEM is the CA's certificate.
func (a *Authority) PEM() []byte { return a.own.pem }

// Name is the CA's subject.
func (a *Authority) Name() string { return a.own.cert.Subject.CommonName }

// Issue makes a client certificate and its key, both in PEM. What with changes before the
// certificate is signed is as it wants: that it has expired, say. With may be nil.
func (a *Authority) Issue(subject pkix.Name, with func(*x509.Certificate)) (cert, key []byte, err error) {
	pair, err := a.own.issue(subject, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if with != nil {
			with(c)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	secrets.Suite.AddKey("the key of "+subject.CommonName, pair.key)
	return pair.cert, pair.key, nil
}
