package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/listproxy/listproxy/proxy/serve"
)

// servingOptions has the address and certificate of the port for clients, and the times of a graceful shutdown.
type servingOptions struct {
	bindAddress   net.IP
	port          uint16
	certFile      string
	keyFile       string
	certDir       string
	tlsMinVersion string
	goawayChance  float64
	shutdownDelay time.Duration
	drainTimeout  time.Duration

	minVersion uint16 // set by Validate, from tlsMinVersion
}

// maxGoawayChance is the largest --goaway-chance, here as in kube-apiserver.
const maxGoawayChance = 0.02

func defaultServingOptions() servingOptions {
	return servingOptions{
		bindAddress:   net.IPv4zero,
		port:          8443,
		certDir:       serve.DefaultDir(),
		tlsMinVersion: "VersionTLS12",
		drainTimeout:  time.Minute, // the default of kube-apiserver's --request-timeout
	}
}

// AddFlags implements optionGroup.
func (o *servingOptions) AddFlags(fs *pflag.FlagSet) {
	fs.IPVar(&o.bindAddress, "bind-address", o.bindAddress, "IP `address` to serve clients on, without the port")
	fs.Uint16Var(&o.port, "secure-port", o.port, "`port` to serve clients on, over TLS; 0 any free one")
	fs.StringVar(&o.certFile, "tls-cert-file", o.certFile,
		"`file` with the serving certificate, PEM; made in --cert-dir if not given")
	fs.StringVar(&o.keyFile, "tls-private-key-file", o.keyFile, "`file` with its key, PEM")
	fs.StringVar(&o.certDir, "cert-dir", o.certDir,
		"`directory` for the certificate that listproxy makes if none is given: tls.crt, for clients to trust, and its key")
	fs.StringVar(&o.tlsMinVersion, "tls-min-version", o.tlsMinVersion,
		"lowest `version` of TLS: "+strings.Join(tlsVersions(), " or "))
	fs.Float64Var(&o.goawayChance, "goaway-chance", o.goawayChance,
		"chance, from 0 to 0.02, that a client is told after a request over HTTP/2 to connect again, perhaps to another "+
			"replica; 0 never, 0.001 is a good start")
	fs.DurationVar(&o.shutdownDelay, "shutdown-delay-duration", o.shutdownDelay,
		"how long listproxy serves as before after SIGTERM, while /readyz already fails, so that load balancers notice")
	fs.DurationVar(&o.drainTimeout, "shutdown-timeout", o.drainTimeout,
		"how long requests may take to end after SIGTERM and --shutdown-delay-duration; watches are ended at once")
}

// Validate implements optionGroup. It also sets minVersion.
func (o *servingOptions) Validate() error {
	if (o.certFile == "") != (o.keyFile == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file go together: give both or none")
	}
	if o.certFile == "" && o.certDir == "" {
		return errors.New("--cert-dir is not given, and there is no home directory for it: give a directory of " +
			"listproxy's own, or a certificate (--tls-cert-file, --tls-private-key-file)")
	}
	if !(o.goawayChance >= 0 && o.goawayChance <= maxGoawayChance) { // negated, since comparisons with NaN are false
		return fmt.Errorf("--goaway-chance %v: give a number from 0 (never) to %v", o.goawayChance, maxGoawayChance)
	}
	minVersion, err := cliflag.TLSVersion(o.tlsMinVersion)
	if err != nil || minVersion < tls.VersionTLS12 {
		return fmt.Errorf("--tls-min-version %q: choose %s", o.tlsMinVersion, strings.Join(tlsVersions(), " or "))
	}
	o.minVersion = minVersion
	return errors.Join(
		checkDuration("--shutdown-delay-duration", o.shutdownDelay, 0),
		checkDuration("--shutdown-timeout", o.drainTimeout, 0),
	)
}

// listen opens --secure-port, or another port that listproxy serves on --bind-address. If port is 0, the system chooses
// one.
func (o *servingOptions) listen(port uint16) (net.Listener, error) {
	return net.ListenTCP("tcp", &net.TCPAddr{IP: o.bindAddress, Port: int(port)})
}

// tlsVersions returns the versions that --tls-min-version accepts. Older versions are of no use: every client of
// kube-apiserver speaks TLS 1.2.
func tlsVersions() []string { return []string{"VersionTLS12", "VersionTLS13"} }

// selfSignedHosts returns the hosts that a self-signed certificate names besides those of [serve.SelfSigned]: the given
// hosts, and --bind-address. If --bind-address stands for all addresses, it is left out.
func (o *servingOptions) selfSignedHosts(hosts []string) []string {
	if o.bindAddress.IsUnspecified() {
		return hosts
	}
	return append(slices.Clone(hosts), o.bindAddress.String())
}

// certificates loads the certificate of the port for clients, which the port for CONNECT shows, too. Without
// --tls-cert-file it makes a self-signed one that names hosts. clientCA is nil if client certificates are not accepted.
func (o *servingOptions) certificates(
	hosts []string, clientCA *serve.ClientCA, log *slog.Logger,
) (*serve.Certificates, error) {
	config := serve.CertificatesConfig{
		CertFile: o.certFile, KeyFile: o.keyFile, ClientCA: clientCA, MinVersion: o.minVersion,
	}
	if o.certFile == "" {
		var err error
		if config.CertFile, config.KeyFile, err = serve.SelfSigned(o.certDir, o.selfSignedHosts(hosts)); err != nil {
			return nil, fmt.Errorf("--cert-dir: %w", err)
		}
		log.Info("serving with a certificate made here: clients need it", "file", config.CertFile)
	}
	certificates, err := serve.NewCertificates(config, log)
	if err != nil {
		return nil, fmt.Errorf("the serving certificate (--tls-cert-file, --tls-private-key-file, --cert-dir): %w", err)
	}
	return certificates, nil
}
