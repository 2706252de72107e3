package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/listproxy/listproxy/proxy/serve"
)

// servingOptions has the address and certificate of the port for clients, and the times of a graceful shutdown.
type servingOptions struct {
	bindAddress    net.IP
	securePort     uint16
	certFile       string
	keyFile        string
	certDir        string
	minVersionName string // one of tlsVersions
	goawayChance   float64
	shutdownDelay  time.Duration
	drainTimeout   time.Duration

	minVersion uint16 // set by Validate, from minVersionName
}

// tlsVersions names the values of --tls-min-version. Older versions are not needed, since every client of kube-apiserver speaks
// TLS 1.2.
const tlsVersions = "VersionTLS12 or VersionTLS13"

// AddFlags implements optionGroup.
func (o *servingOptions) AddFlags(fs *pflag.FlagSet) {
	fs.IPVar(&o.bindAddress, "bind-address", net.IPv4zero, "IP `address` to serve clients on, without the port")
	fs.Uint16Var(&o.securePort, "secure-port", 8443, "`port` to serve clients on, over TLS; 0 any free one")
	fs.StringVar(&o.certFile, "tls-cert-file", "",
		"`file` with the serving certificate, PEM; made in --cert-dir if not given")
	fs.StringVar(&o.keyFile, "tls-private-key-file", "", "`file` with its key, PEM")
	fs.StringVar(&o.certDir, "cert-dir", serve.DefaultDir(),
		"`directory` for the certificate that listproxy makes if none is given: tls.crt, for clients to trust, and its key")
	fs.StringVar(&o.minVersionName, "tls-min-version", "VersionTLS12", "lowest `version` of TLS: "+tlsVersions)
	fs.Float64Var(&o.goawayChance, "goaway-chance", 0,
		"chance, from 0 to 0.02, that a client is told after a request over HTTP/2 to connect again, perhaps to another "+
			"replica; 0 never, 0.001 is a good start")
	fs.DurationVar(&o.shutdownDelay, "shutdown-delay-duration", 0,
		"how long listproxy serves as before after SIGTERM, while /readyz already fails, so that load balancers notice")
	fs.DurationVar(&o.drainTimeout, "shutdown-timeout", time.Minute, // as kube-apiserver's --request-timeout
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
	const maxGoawayChance = 0.02                                              // as in kube-apiserver
	isValidChance := o.goawayChance >= 0 && o.goawayChance <= maxGoawayChance // false for NaN
	if !isValidChance {
		return fmt.Errorf("--goaway-chance %v: give a number from 0 (never) to %v", o.goawayChance, maxGoawayChance)
	}
	minVersion, err := cliflag.TLSVersion(o.minVersionName)
	if err != nil || minVersion < tls.VersionTLS12 {
		return fmt.Errorf("--tls-min-version %q: choose %s", o.minVersionName, tlsVersions)
	}
	o.minVersion = minVersion
	return errors.Join(
		checkDuration("--shutdown-delay-duration", o.shutdownDelay, 0),
		checkDuration("--shutdown-timeout", o.drainTimeout, 0),
	)
}

// listen opens a port on --bind-address. If port is 0, the operating system chooses one.
func (o *servingOptions) listen(port uint16) (net.Listener, error) {
	return net.ListenTCP("tcp", &net.TCPAddr{IP: o.bindAddress, Port: int(port)})
}

// selfSignedHosts returns the hosts that a self-signed certificate names besides those of [serve.SelfSigned]: the given
// hosts, and --bind-address unless it stands for all addresses.
func (o *servingOptions) selfSignedHosts(hosts []string) []string {
	if o.bindAddress.IsUnspecified() {
		return hosts
	}
	return append(slices.Clone(hosts), o.bindAddress.String())
}

// loadCertificates loads the certificate of the ports for clients and for CONNECT. Without --tls-cert-file it first makes a
// self-signed one that names hosts. clientCA is nil if client certificates are not accepted.
func (o *servingOptions) loadCertificates(
	hosts []string, clientCA *dynamiccertificates.DynamicFileCAContent, log *slog.Logger,
) (*serve.Certificates, error) {
	config := serve.CertificatesConfig{CertFile: o.certFile, KeyFile: o.keyFile, ClientCA: clientCA, MinVersion: o.minVersion}
	if o.certFile == "" {
		certFile, keyFile, err := serve.SelfSigned(o.certDir, o.selfSignedHosts(hosts))
		if err != nil {
			return nil, fmt.Errorf("--cert-dir: %w", err)
		}
		config.CertFile, config.KeyFile = certFile, keyFile
		log.Info("serving with a certificate made here: clients need it", "file", certFile)
	}
	certificates, err := serve.NewCertificates(config, log)
	if err != nil {
		return nil, fmt.Errorf("the serving certificate (--tls-cert-file, --tls-private-key-file, --cert-dir): %w", err)
	}
	return certificates, nil
}
