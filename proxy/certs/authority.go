package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	caFile    = "ca.crt"
	caKeyFile = "ca.key"

	// authorityLifetime is that of a CA made here: its clients hold a copy of it, so it should not
	// change.
	authorityLifetime = 10 * 365 * 24 * time.Hour
	// renewBefore is how long a stored CA or pair must still be valid to be used.
	renewBefore = 30 * 24 * time.Hour
	// clockSkew lets a pair be used by clients whose clock is behind.
	clockSkew = time.Hour
)

// An Authority is a CA that signs the certificates that listproxy shows to clients. Whoever has its
// key can pretend to be the API server to these clients; nothing here prints or logs the key. It is
// immutable.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	// chain has the certificates between the leaf and the root, in order, for clients that know only
	// the root.
	chain [][]byte
	pem   []byte
}

// loadAuthority reads a CA from files, both PEM: certPath has its certificate, followed by those up
// to the root if it is an intermediate CA; keyPath has its private key. If they do not belong
// together or cannot sign now, it returns an error that names the file.
func loadAuthority(certPath, keyPath string, now time.Time) (*Authority, error) {
	certPEM, err := os.ReadFile(certPath)
	if err != nil {
		return nil, fmt.Errorf("reading the CA: %w", err)
	}
	keyPEM, err := os.ReadFile(keyPath)
	if err != nil {
		return nil, fmt.Errorf("reading the CA's private key: %w", err)
	}
	a, err := parseAuthority(certPEM, keyPEM, now)
	if err != nil {
		return nil, fmt.Errorf("the CA in %s with the private key in %s: %w", certPath, keyPath, err)
	}
	return a, nil
}

// parseAuthority makes an Authority of a certificate and a key. Its errors name no file.
func parseAuthority(certPEM, keyPEM []byte, now time.Time) (*Authority, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	ca := pair.Leaf
	key, ok := pair.PrivateKey.(crypto.Signer)
	switch {
	case !ok:
		return nil, errors.New("the key cannot sign")
	case !ca.BasicConstraintsValid || !ca.IsCA || ca.KeyUsage != 0 && ca.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, errors.New("it is not a CA: the certificate does not allow signing others")
	case now.Before(ca.NotBefore):
		return nil, fmt.Errorf("it is not valid before %s", ca.NotBefore.Format(time.RFC3339))
	case !now.Before(ca.NotAfter):
		return nil, fmt.Errorf("it has expired at %s", ca.NotAfter.Format(time.RFC3339))
	}
	a := &Authority{certificate: ca, key: key, pem: certPEM}
	if !bytes.Equal(ca.RawIssuer, ca.RawSubject) {
		a.chain = pair.Certificate // an intermediate one: clients may know only the root
	}
	return a, nil
}

// issue signs a new pair for hosts (DNS names and IP addresses). The pair does not outlive the CA.
// It returns an error if clients that trust the CA would not accept the pair for one of the hosts
// (for example, because of the CA's own name constraints).
func (a *Authority) issue(hosts []string, lifetime time.Duration, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "listproxy"},
		NotBefore: later(now.Add(-clockSkew), a.certificate.NotBefore),
		NotAfter:  sooner(now.Add(lifetime), a.certificate.NotAfter),
		KeyUsage:  x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate: %w", err)
	}
	if leaf, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	for _, host := range hosts {
		if err := a.verify(leaf, host, now); err != nil {
			return nil, fmt.Errorf("the CA cannot sign for %s: %w", host, err)
		}
	}
	return &tls.Certificate{
		Certificate: append([][]byte{der}, a.chain...), PrivateKey: key, Leaf: leaf,
	}, nil
}

// verify checks a leaf like a client that trusts the CA. An empty host matches any.
func (a *Authority) verify(leaf *x509.Certificate, host string, now time.Time) error {
	if net.ParseIP(host) != nil {
		host = "[" + host + "]" // how crypto/x509 wants addresses
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: host})
	return err
}

// storedAuthority returns the CA in dir if it can be used.
// Not ok means that there is none, or that it cannot be used. An error means that it could not be
// read: such a CA must not be replaced, since clients trust it.
func storedAuthority(dir string, now time.Time) (a *Authority, ok bool, err error) {
	a, err = loadAuthority(filepath.Join(dir, caFile), filepath.Join(dir, caKeyFile), now)
	if unread := (*fs.PathError)(nil); errors.As(err, &unread) && !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err
	}
	return a, err == nil && now.Add(renewBefore).Before(a.certificate.NotAfter), nil
}

// createAuthority makes a CA and keeps it in dir. The caller holds dir's lock.
func createAuthority(dir string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: fmt.Sprintf("listproxy-ca@%d", now.Unix())},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityLifetime),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certPEM, keyPEM, err := encodePair([][]byte{der}, key)
	if err != nil {
		return nil, err
	}
	a, err := parseAuthority(certPEM, keyPEM, now)
	if err != nil {
		return nil, err
	}
	// The key is written first: a CA that clients already trust, but whose key is lost, is worse than
	// none.
	if err := writeFileAtomically(filepath.Join(dir, caKeyFile), keyPEM, 0o600); err != nil {
		return nil, err
	}
	return a, writeFileAtomically(filepath.Join(dir, caFile), certPEM, 0o644)
}

// loadOrCreateAuthority returns the CA that is kept in dir as ca.crt (0644) and ca.key (0600), and
// makes one if there is none, or none that can be used for another 30 days. A CA made here is good
// for ten years. Several processes may share dir: they then have the same CA.
func loadOrCreateAuthority(dir string, now time.Time) (*Authority, error) {
	a, ok, err := storedAuthority(dir, now)
	if ok || err != nil {
		return a, err
	}
	err = withDirLock(dir, func() (err error) {
		a, err = loadOrCreateAuthorityLocked(dir, now)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("making a CA: %w", err)
	}
	return a, nil
}

func loadOrCreateAuthorityLocked(dir string, now time.Time) (*Authority, error) {
	if a, ok, err := storedAuthority(dir, now); ok || err != nil {
		return a, err
	}
	return createAuthority(dir, now)
}

// withDirLock calls do, which changes the files in dir, while no other process does so. dir is made
// if it is missing.
func withDirLock(dir string, do func() error) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // ca.crt is for every client to read
		return err
	}
	unlock, err := lockFile(filepath.Join(dir, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	return do()
}

// encodePair returns a chain of certificates and a key as PEM.
func encodePair(chain [][]byte, key crypto.Signer) (certPEM, keyPEM []byte, err error) {
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	for _, der := range chain {
		certPEM = append(certPEM, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return certPEM, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

// KeyReadableByOthers says whether anybody on the machine may read the file at path. That its group
// may read the file does not count: in this way Kubernetes gives a mounted Secret to a process that
// is not root.
func KeyReadableByOthers(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm()&0o004 != 0
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
