package certs

import (
	"crypto"
	"crypto/tls"
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
	certFile = "tls.crt"
	keyFile  = "tls.key"

	// certificateLifetime is that of a serving pair made here.
	certificateLifetime = 365 * 24 * time.Hour
)

// loadOrCreate returns a serving pair for localhost, the loopback addresses,
// the machine's name and hosts (names or IP addresses). It is made and kept in
// dir, as tls.crt and tls.key (0600), signed by the CA in dir (see
// [loadOrCreateAuthority]); caPath is that of its certificate, for clients.
//
// A pair in dir is used again while it is valid for another 30 days, belongs to
// the CA beside it and covers all hosts. Pairs made here are valid for a year;
// they are for trying listproxy out and for private networks. Several processes
// may share dir; where they want other hosts, the last one's pair stays.
func loadOrCreate(dir string, hosts []string, now time.Time) (pair tls.Certificate, caPath string, err error) {
	if dir == "" {
		return tls.Certificate{}, "", errors.New("no TLS certificate was given, and no directory to keep a self-signed one in")
	}
	names, err := servingNames(hosts)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	caPath = filepath.Join(dir, caFile)
	if pair, ok := storedPair(dir, names, now); ok {
		return pair, caPath, nil
	}
	err = withDirLock(dir, func() (err error) {
		var ok bool
		if pair, ok = storedPair(dir, names, now); !ok {
			pair, err = createPair(dir, names, now)
		}
		return err
	})
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("making a self-signed certificate: %w", err)
	}
	return pair, caPath, nil
}

// servingNames are those that a made pair is for: the machine's own and hosts.
func servingNames(hosts []string) ([]string, error) {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if hostname, err := os.Hostname(); err == nil && validHost(hostname) {
		names = append(names, hostname)
	}
	for _, host := range hosts {
		if !validHost(host) {
			return nil, fmt.Errorf("%q is neither a DNS name nor an IP address, so no certificate can be made for it", host)
		}
		names = append(names, host)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
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
		return tls.Certificate{}, fmt.Errorf("the TLS certificate in %s and the private key in %s cannot be used together: %w",
			certPath, keyPath, err)
	}
	return pair, nil
}

// storedPair returns the pair in dir if it can be served. If anything is wrong with it, even after
// a crash in the middle of writing, the caller makes a new one.
func storedPair(dir string, hosts []string, now time.Time) (tls.Certificate, bool) {
	ca, ok, err := storedAuthority(dir, now)
	if !ok || err != nil {
		return tls.Certificate{}, false
	}
	pair, err := loadPair(filepath.Join(dir, certFile), filepath.Join(dir, keyFile))
	if err != nil {
		return tls.Certificate{}, false
	}
	for _, at := range []time.Time{now, now.Add(renewBefore)} {
		if ca.verify(pair.Leaf, "", at) != nil {
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

// createPair makes a pair and keeps it in dir. The caller holds dir's lock.
func createPair(dir string, hosts []string, now time.Time) (tls.Certificate, error) {
	ca, err := loadOrCreateAuthorityLocked(dir, now)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := ca.issue(hosts, certificateLifetime, now)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return tls.Certificate{}, errors.New("the key cannot sign")
	}
	certPEM, keyPEM, err := encodePair(pair.Certificate, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	if err := writeFileAtomically(filepath.Join(dir, keyFile), keyPEM, 0o600); err != nil {
		return tls.Certificate{}, err
	}
	return *pair, writeFileAtomically(filepath.Join(dir, certFile), certPEM, 0o600)
}

// writeFileAtomically replaces the file at path. A reader sees either the old content or the new,
// never a mixture.
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
	return net.ParseIP(host) != nil || ValidName(host)
}

// ValidName says whether host can be a name in a certificate.
func ValidName(host string) bool { return len(host) <= 253 && hostPattern.MatchString(host) }

// DefaultDir is where listproxy keeps the certificate and the CA that it makes, if a person starts
// it. In a container without a home it is empty: a directory that others can write to is no place
// for a CA.
func DefaultDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "listproxy")
}
