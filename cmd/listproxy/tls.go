package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	cliflag "k8s.io/component-base/cli/flag"

	"github.com/listproxy/listproxy/proxy/certs"
)

// tlsVersions are those that --tls-min-version takes. Older ones have no use: what speaks to a
// kube-apiserver speaks 1.2.
func tlsVersions() []string { return []string{"VersionTLS12", "VersionTLS13"} }

// completeTLS makes server.TLS of the flags, which are kube-apiserver's.
func (o *options) completeTLS() error {
	if !slices.Contains(tlsVersions(), o.tlsMinVersion) {
		return fmt.Errorf("--tls-min-version %q: choose %s", o.tlsMinVersion, strings.Join(tlsVersions(), " or "))
	}
	version, err := cliflag.TLSVersion(o.tlsMinVersion)
	if err != nil {
		return fmt.Errorf("--tls-min-version: %w", err)
	}
	o.tls.MinVersion = version
	if len(o.tlsCipherSuites) == 0 {
		return nil
	}
	o.tls.CipherSuites, err = cliflag.TLSCipherSuites(o.tlsCipherSuites)
	if err != nil {
		return fmt.Errorf("--tls-cipher-suites: %w: choose among %s", err, strings.Join(cliflag.PreferredTLSCipherNames(), ", "))
	}
	// net/http would say so too, once the listeners are there (RFC 9113, 9.2.2).
	if version < tls.VersionTLS13 &&
		!slices.Contains(o.tls.CipherSuites, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) &&
		!slices.Contains(o.tls.CipherSuites, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256) {
		return errors.New("--tls-cipher-suites has none that HTTP/2 needs: add TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 or " +
			"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, or set --tls-min-version VersionTLS13")
	}
	return nil
}

// warnOfTLS says what kube-apiserver warns of too.
func (o *options) warnOfTLS(log *slog.Logger) {
	insecure := cliflag.InsecureTLSCiphers()
	for _, name := range o.tlsCipherSuites {
		if _, ok := insecure[name]; ok {
			log.Warn("--tls-cipher-suites has an insecure cipher suite", "suite", name)
		}
	}
}

// serving returns the certificate that clients see at both ports.
func (o *options) serving(log *slog.Logger) (*certs.Certificate, error) {
	if o.certFile != "" {
		warnOfKey(log, "--tls-private-key-file", o.keyFile)
		c, err := certs.ServingFromFiles(o.certFile, o.keyFile, log)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert-file, --tls-private-key-file: %w", err)
		}
		return c, nil
	}
	c, ca, err := certs.ServingFromDir(o.certDir, o.certHosts, log)
	if err != nil {
		return nil, fmt.Errorf("--cert-dir, --cert-hosts: %w", err)
	}
	warnOfKey(log, "--cert-dir", filepath.Join(o.certDir, "ca.key"))
	log.Info("serving with a certificate made here: clients need its CA", "ca", ca)
	return c, nil
}

// warnOfKey says if everybody on the machine can read a private key. It is used all the same: a
// mounted Secret is like that unless its volume has a defaultMode, in a container of one user.
func warnOfKey(log *slog.Logger, flag, path string) {
	if certs.KeyReadableByOthers(path) {
		log.Warn("a private key is readable by everybody on this machine: take that away (chmod o-r, defaultMode of a Secret's volume)",
			"flag", flag, "file", path)
	}
}

// expiries says when the certificates end that clients are shown, and the CAs of theirs.
func (a *app) expiries() []certs.Expiry {
	all := []certs.Expiry{a.ports.certificate.Expiry()}
	if a.ports.connect != nil {
		all = append(all, a.ports.connect.certificate.Expiry())
	}
	for _, ca := range a.clientCAs {
		all = append(all, ca.Expiry())
	}
	return all
}
