package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

const (
	caFile   = "ca.crt"
	certFile = "tls.crt"
	keyFile  = "tls.key"

	// certificateLifetime is that of a pair made here and of its CA.
	certificateLifetime = 365 * 24 * time.Hour
	// renewBefore is how long a stored pair must still be valid to be used.
	renewBefore = 30 * 24 * time.Hour
	// clockSkew lets a pair be used by clients whose clock is behind.
	clockSkew = time.Hour
)

// ServerTLSConfig returns the TLS settings for clients: TLS 1.2 at least, HTTP/2
// preferred.
func ServerTLSConfig(pair tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
	}
}

// LoadOrCreateCertificate returns the serving pair. If certPath and keyPath are
// given it is read from there, and the returned path of the CA is empty. If
// neither is, a CA and a pair for localhost, the loopback addresses, the machine's
// name and hosts (names or IP addresses) are made and kept in dir, as ca.crt
// (for clients, 0644), tls.crt and tls.key (0600), and caPath is that of ca.crt.
//
// A pair in dir is used again while it is valid for another 30 days, belongs to
// the CA beside it and covers all hosts. Otherwise a new CA is made with it, since
// the CA's key is never kept: clients then need the new ca.crt. Pairs made here
// are valid for a year; they are for trying listproxy out and for private
// networks. Two processes must not share dir.
func LoadOrCreateCertificate(certPath, keyPath, dir string, hosts []string, now time.Time) (pair tls.Certificate, caPath string, err error) {
	switch {
	case certPath != "" && keyPath != "":
		pair, err = loadPair(certPath, keyPath)
		return pair, "", err
	case certPath != "" || keyPath != "":
		return tls.Certificate{}, "", errors.New("a TLS certificate and its private key must be given together")
	case dir == "":
		return tls.Certificate{}, "", errors.New("no TLS certificate was given, and no directory to keep a self-signed one in")
	}

	names := []string{"localhost", "127.0.0.1", "::1"}
	if hostname, err := os.Hostname(); err == nil && validHost(hostname) {
		names = append(names, hostname)
	}
	for _, host := range hosts {
		if !validHost(host) {
			return tls.Certificate{}, "", fmt.Errorf("%q is neither a DNS name nor an IP address, so no certificate can be made for it", host)
		}
		names = append(names, host)
	}
	slices.Sort(names)
	names = slices.Compact(names)

	caPath = filepath.Join(dir, caFile)
	if pair, ok := storedPair(dir, names, now); ok {
		return pair, caPath, nil
	}
	pair, err = createPair(dir, names, now)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("making a self-signed certificate: %w", err)
	}
	return pair, caPath, nil
}

func loadPair(certPath, keyPath string) (tls.Certificate, error) {
	certPEM, err := os.ReadFile(certPath)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("reading the TLS certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(keyPath)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("reading the TLS private key: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("the TLS certificate in %s and the private key in %s cannot be used together: %w", certPath, keyPath, err)
	}
	return pair, nil
}

// storedPair returns the pair in dir if it can be served. Whatever is wrong with
// it, and be it that a crash has left only a part, a new one is the remedy.
func storedPair(dir string, hosts []string, now time.Time) (tls.Certificate, bool) {
	pair, err := loadPair(filepath.Join(dir, certFile), filepath.Join(dir, keyFile))
	if err != nil {
		return tls.Certificate{}, false
	}
	caPEM, err := os.ReadFile(filepath.Join(dir, caFile))
	if err != nil {
		return tls.Certificate{}, false
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(caPEM)
	for _, at := range []time.Time{now, now.Add(renewBefore)} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at}); err != nil {
			return tls.Certificate{}, false
		}
	}
	for _, host := range hosts {
		if pair.Leaf.VerifyHostname(host) != nil {
			return tls.Certificate{}, false
		}
	}
	return pair, true
}

func createPair(dir string, hosts []string, now time.Time) (tls.Certificate, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	ca := &x509.Certificate{
		Subject:   pkix.Name{CommonName: fmt.Sprintf("listproxy-ca@%d", now.Unix())},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(certificateLifetime),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	if ca, err = x509.ParseCertificate(caDER); err != nil {
		return tls.Certificate{}, err
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "listproxy"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return tls.Certificate{}, err
	}

	caPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leafDER})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // ca.crt is for every client to read
		return tls.Certificate{}, err
	}
	for _, file := range []struct {
		name string
		data []byte
		mode os.FileMode
	}{{keyFile, keyPEM, 0o600}, {certFile, certPEM, 0o600}, {caFile, caPEM, 0o644}} {
		if err := writeFileAtomically(filepath.Join(dir, file.name), file.data, file.mode); err != nil {
			return tls.Certificate{}, err
		}
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

// writeFileAtomically replaces path, so that a reader sees the old content or
// the new and nothing between.
func writeFileAtomically(path string, data []byte, mode os.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode) // CreateTemp's is 0600
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// hostPattern is what crypto/x509 compares with a certificate's names.
var hostPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*(\.[A-Za-z0-9][A-Za-z0-9-]*)*$`)

// validHost reports whether host is an IP address or a DNS name.
func validHost(host string) bool {
	return net.ParseIP(host) != nil || len(host) <= 253 && hostPattern.MatchString(host)
}
