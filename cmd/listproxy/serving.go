package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/listproxy/listproxy/proxy/certs"
	"github.com/listproxy/listproxy/proxy/server"
)

// servingOptions say where clients connect to, what they are shown there, and how serving ends.
type servingOptions struct {
	bindAddress     string
	port            int
	certFile        string
	keyFile         string
	certDir         string
	certHosts       []string
	tlsMinVersion   string
	tlsCipherSuites []string
	goawayChance    float64
	delay           time.Duration
	drain           time.Duration

	tls server.TLS // by Validate
}

// maxGoawayChance is kube-apiserver's.
const maxGoawayChance = 0.02

func defaultServingOptions() servingOptions {
	return servingOptions{
		bindAddress:   "0.0.0.0",
		port:          8443,
		certDir:       certs.DefaultDir(),
		tlsMinVersion: "VersionTLS12",
		drain:         time.Minute, // kube-apiserver's --request-timeout
	}
}

// AddFlags implements optionGroup.
func (o *servingOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.bindAddress, "bind-address", o.bindAddress, "`address` to serve clients on")
	fs.IntVar(&o.port, "secure-port", o.port, "`port` to serve clients on, over TLS")
	fs.StringVar(&o.certFile, "tls-cert-file", o.certFile, "`file` with the serving certificate, PEM; made in --cert-dir if not given")
	fs.StringVar(&o.keyFile, "tls-private-key-file", o.keyFile, "`file` with its key, PEM")
	fs.StringVar(&o.certDir, "cert-dir", o.certDir,
		"`directory` for the certificate that listproxy makes if none is given, and its CA (ca.crt)")
	fs.StringSliceVar(&o.certHosts, "cert-hosts", o.certHosts, "more `names` or addresses for the certificate that listproxy makes")
	fs.StringVar(&o.tlsMinVersion, "tls-min-version", o.tlsMinVersion, "lowest `version` of TLS: "+strings.Join(tlsVersions(), " or "))
	fs.StringSliceVar(&o.tlsCipherSuites, "tls-cipher-suites", o.tlsCipherSuites,
		"cipher `suites` of TLS 1.2, with the names that kube-apiserver uses; without it, Go's own choice")
	fs.Float64Var(&o.goawayChance, "goaway-chance", o.goawayChance,
		"part of the requests over HTTP/2 after which their client is told to connect again, so that clients spread over\n"+
			"replicas; up to 0.02; 0 none, 0.001 is a good beginning")
	fs.DurationVar(&o.delay, "shutdown-delay-duration", o.delay,
		"how long listproxy serves as before after SIGTERM, while /readyz already fails, so that load balancers notice")
	fs.DurationVar(&o.drain, "shutdown-timeout", o.drain,
		"how long requests may take to end after SIGTERM and --shutdown-delay-duration; watches are ended at once")
}

// Validate implements optionGroup.
func (o *servingOptions) Validate() error {
	if (o.certFile == "") != (o.keyFile == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file go together: give both or none")
	}
	if o.port < 0 || o.port > 65535 {
		return fmt.Errorf("--secure-port %d: a port is a number from 0 (any free one) to 65535", o.port)
	}
	if err := checkBindAddress(o.bindAddress); err != nil {
		return err
	}
	if !(o.goawayChance >= 0 && o.goawayChance <= maxGoawayChance) { // nor NaN
		return fmt.Errorf("--goaway-chance %v: give a number from 0 (never) to %v", o.goawayChance, maxGoawayChance)
	}
	if err := o.completeTLS(); err != nil {
		return err
	}
	return checkDurations(durationFlag{"--shutdown-delay-duration", o.delay, 0}, durationFlag{"--shutdown-timeout", o.drain, 0})
}

// checkBindAddress says what is wrong with an address to serve clients on.
func checkBindAddress(address string) error {
	if net.ParseIP(address) != nil {
		return nil
	}
	if host, port, err := net.SplitHostPort(address); err == nil && net.ParseIP(host) != nil {
		return fmt.Errorf("--bind-address %q has a port: give --bind-address %s --secure-port %s", address, host, port)
	}
	return fmt.Errorf("--bind-address %q is not an IP address: give one of this machine's, or 0.0.0.0 for all; "+
		"the port goes to --secure-port", address)
}

// tlsVersions are those that --tls-min-version takes. Older ones have no use: what speaks to a
// kube-apiserver speaks 1.2.
func tlsVersions() []string { return []string{"VersionTLS12", "VersionTLS13"} }

// completeTLS makes server.TLS of the flags, which are kube-apiserver's.
func (o *servingOptions) completeTLS() error {
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
func (o *servingOptions) warnOfTLS(log *slog.Logger) {
	insecure := cliflag.InsecureTLSCiphers()
	for _, name := range o.tlsCipherSuites {
		if _, ok := insecure[name]; ok {
			log.Warn("--tls-cipher-suites has an insecure cipher suite", "suite", name)
		}
	}
}

// certificate returns the one that clients see at both ports.
func (o *servingOptions) certificate(log *slog.Logger) (*certs.Certificate, error) {
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
	if a.clientCA != nil {
		all = append(all, a.clientCA.Expiry())
	}
	return all
}
