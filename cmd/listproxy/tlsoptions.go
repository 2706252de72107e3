package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	cliflag "k8s.io/component-base/cli/flag"

	"github.com/listproxy/listproxy/proxy/server"
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
		return errors.New("--tls-cipher-suites has none that HTTP/2 needs: add TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, or set --tls-min-version VersionTLS13")
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

// checkConnect checks the flags of the port for CONNECT.
func (o *options) checkConnect() error {
	switch {
	case o.connectPort < -1 || o.connectPort > 65535:
		return fmt.Errorf("--connect-port %d: a port is a number from 0 (any free one) to 65535, and -1 opens none", o.connectPort)
	case (o.connectCAFile == "") != (o.connectCAKeyFile == ""):
		return errors.New("--connect-ca-file and --connect-ca-key-file go together: give both or none")
	case o.connectPort > 0 && o.connectPort == o.securePort:
		return fmt.Errorf("--connect-port %d is --secure-port too: the port for CONNECT is one of its own", o.connectPort)
	}
	if o.connectPort < 0 {
		for _, f := range []struct {
			name  string
			given bool
		}{
			{"--connect-plain-http", o.connectPlain},
			{"--connect-hosts", len(o.connectHosts) > 0},
			{"--connect-ca-file", o.connectCAFile != ""},
		} {
			if f.given {
				return fmt.Errorf("%s is for the port for CONNECT, which is not open: give --connect-port", f.name)
			}
		}
		return nil
	}
	// Any upstream will do: only what is given here is of interest.
	if _, err := server.NewTargets(&url.URL{Host: "localhost"}, o.connectHosts); err != nil {
		return fmt.Errorf("--connect-hosts %w", err)
	}
	return nil
}
