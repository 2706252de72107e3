package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// Certificates has the serving certificate, which is the same at all ports, and the CAs of clients. While Run runs, their
// files may be replaced at any time. Open connections keep their certificates. Certificates is safe for concurrent use.
type Certificates struct {
	serving    *dynamiccertificates.DynamicCertKeyPairContent
	clientCA   *dynamiccertificates.DynamicFileCAContent // nil if there is none
	controller *dynamiccertificates.DynamicServingCertificateController
	log        *slog.Logger
}

// CertificatesConfig configures Certificates.
type CertificatesConfig struct {
	// CertFile is the file with the serving certificate in PEM, and after it the intermediate certificates that clients need.
	CertFile string
	// KeyFile is the file with the certificate's private key in PEM.
	KeyFile string
	// ClientCA has the CAs of clients' certificates. If it is nil, clients are not asked for a certificate. [Certificates.Run]
	// reads its file again.
	ClientCA *dynamiccertificates.DynamicFileCAContent
	// MinVersion is the lowest version of TLS, a constant of crypto/tls. 0 means 1.2.
	MinVersion uint16
}

// NewCertificates returns the Certificates in the files of cfg.
func NewCertificates(cfg CertificatesConfig, log *slog.Logger) (*Certificates, error) {
	serving, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%w: there must be a certificate in %s and its private key in %s, PEM, that this process may read",
			err, cfg.CertFile, cfg.KeyFile)
	}
	certificates := &Certificates{serving: serving, clientCA: cfg.ClientCA, log: log}
	base := &tls.Config{
		MinVersion: max(cfg.MinVersion, tls.VersionTLS12),
		NextProtos: []string{"h2", "http/1.1"},
		// Small records at the beginning of a connection let a browser show a page sooner, but each is a system call. Clients
		// of an API wait for the whole answer anyway.
		DynamicRecordSizingDisabled: true,
	}
	var clientCAs dynamiccertificates.CAContentProvider // stays nil without CAs: a nil cfg.ClientCA in it would not be nil
	if cfg.ClientCA != nil {
		// A client may have no certificate. The handshake does not verify one. The authenticator does, at every request, so a
		// certificate no longer counts once its CA has left the file.
		base.ClientAuth = tls.RequestClientCert
		clientCAs = cfg.ClientCA
	}
	// The nils stand for certificates by SNI and a recorder of events.
	certificates.controller = dynamiccertificates.NewDynamicServingCertificateController(base, clientCAs, serving, nil, nil)
	return certificates, certificates.controller.RunOnce()
}

// TLS returns the TLS configuration of the main port and of the tunnels, which prefers HTTP/2.
func (c *Certificates) TLS() *tls.Config {
	return &tls.Config{
		GetConfigForClient: c.controller.GetConfigForClient,
		MinVersion:         tls.VersionTLS12,           // for linters: the one of GetConfigForClient's configuration counts
		NextProtos:         []string{"h2", "http/1.1"}, // net/http reads here whether to serve HTTP/2
	}
}

// ConnectTLS returns the TLS configuration of the CONNECT port. It offers HTTP/1.1 only, since Go's clients write CONNECT
// as HTTP/1.1 even after they have agreed on HTTP/2. It asks for no client certificate, since callers authenticate inside
// the tunnel.
func (c *Certificates) ConnectTLS() *tls.Config {
	configFor := func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		config, err := c.controller.GetConfigForClient(hello) // a copy
		if err == nil {
			config.NextProtos = []string{"http/1.1"}
			config.ClientAuth = tls.NoClientCert
		}
		return config, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: configFor}
}

// Run reads the files again from time to time, until ctx ends. The certificate and its key are replaced one after the other, so
// a new certificate comes into use only when the key matches it. Only one Run may run at a time.
func (c *Certificates) Run(ctx context.Context) {
	kubehttp.ReloadFiles(ctx, c.log, "a new certificate", c.reload)
}

// reload reads the files, and reports whether the serving certificate has changed.
func (c *Certificates) reload(ctx context.Context) (changed bool, err error) {
	before := c.servingPEM()
	if err = c.serving.RunOnce(ctx); err != nil {
		err = fmt.Errorf("%s: %w", c.serving.Name(), err) // the name has the paths of both files
	}
	if c.clientCA != nil {
		err = errors.Join(err, c.clientCA.RunOnce(ctx))
	}
	err = errors.Join(err, c.controller.RunOnce())
	return !bytes.Equal(before, c.servingPEM()), err
}

// servingPEM returns the serving certificate and its intermediate certificates in PEM.
func (c *Certificates) servingPEM() []byte {
	certificate, _ := c.serving.CurrentCertKeyContent() // without the key
	return certificate
}

// MissingHosts returns the hosts (names or addresses) for which the serving certificate is not valid.
func (c *Certificates) MissingHosts(hosts []string) (missing []string) {
	chain, _ := cert.ParseCertsPEM(c.servingPEM()) // checked when it was read
	for _, host := range hosts {
		if len(chain) == 0 || chain[0].VerifyHostname(host) != nil {
			missing = append(missing, host)
		}
	}
	return missing
}

// Expiries returns when the serving certificate expires ("serving"), and when the CAs of clients expire ("client-ca"), if
// there are any. In a chain or a file with several CAs, the first to expire counts. A time is zero if there is no certificate.
func (c *Certificates) Expiries() map[string]time.Time {
	expiries := map[string]time.Time{"serving": firstExpiry(c.servingPEM())}
	if c.clientCA != nil {
		expiries["client-ca"] = firstExpiry(c.clientCA.CurrentCABundleContent())
	}
	return expiries
}

// firstExpiry returns the time at which the first of the certificates in data expires, or zero if there are none. data was
// checked when it was read.
func firstExpiry(data []byte) time.Time {
	certificates, _ := cert.ParseCertsPEM(data)
	if len(certificates) == 0 {
		return time.Time{}
	}
	compare := func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }
	return slices.MinFunc(certificates, compare).NotAfter
}
