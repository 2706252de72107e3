package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// Certificates has the serving certificate, which is the same at all ports, and the CAs of clients. While Run runs,
// their files may be replaced at any time; open connections keep their certificates. It is safe for concurrent use.
type Certificates struct {
	serving  *dynamiccertificates.DynamicCertKeyPairContent
	clientCA *ClientCA // nil: none
	settings *dynamiccertificates.DynamicServingCertificateController
	log      *slog.Logger
}

// CertificatesConfig configures Certificates.
type CertificatesConfig struct {
	// CertFile has the serving certificate in PEM, followed by those up to its root if clients need them, and KeyFile
	// its key.
	CertFile, KeyFile string
	// ClientCA has the CAs of clients' certificates. If it is nil clients are not asked for one.
	ClientCA *ClientCA
	// MinVersion is the lowest version of TLS, by its number in crypto/tls. 0 stands for 1.2.
	MinVersion uint16
}

// NewCertificates returns the Certificates in the files of c.
func NewCertificates(c CertificatesConfig, log *slog.Logger) (*Certificates, error) {
	serving, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%w: there must be a certificate in %s and its private key in %s, PEM, that this process may read",
			err, c.CertFile, c.KeyFile)
	}
	certificates := &Certificates{serving: serving, clientCA: c.ClientCA, log: log}
	base := &tls.Config{
		MinVersion: max(c.MinVersion, tls.VersionTLS12),
		NextProtos: []string{"h2", "http/1.1"},
		// Small records at the beginning of a connection would let a browser show the beginning of a page sooner.
		// Clients of an API wait for the whole answer, and each record is a system call.
		DynamicRecordSizingDisabled: true,
	}
	var clientCAs dynamiccertificates.CAContentProvider
	if ca := c.ClientCA; ca != nil {
		// A client may have no certificate. The authenticator verifies one at every request, so that a connection does
		// not outlive its CA.
		base.ClientAuth = tls.RequestClientCert
		clientCAs = ca
	}
	certificates.settings = dynamiccertificates.NewDynamicServingCertificateController(base, clientCAs, serving, nil, nil)
	return certificates, certificates.settings.RunOnce()
}

// TLS returns the settings of the main port and of the tunnels, which prefer HTTP/2.
func (c *Certificates) TLS() *tls.Config {
	return &tls.Config{
		GetConfigForClient: c.settings.GetConfigForClient,
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"}, // net/http looks here
	}
}

// ConnectTLS returns the settings of the port for CONNECT. They offer HTTP/1.1 only, since Go's clients write CONNECT
// as HTTP/1.1 even after they have agreed on HTTP/2, and ask for no client certificate, since callers authenticate
// inside the tunnel.
func (c *Certificates) ConnectTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		config, err := c.settings.GetConfigForClient(hello) // a copy
		if err == nil {
			config.NextProtos = []string{"http/1.1"}
			config.ClientAuth = tls.NoClientCert
		}
		return config, err
	}}
}

// Run reads the files again until ctx ends. Certificate and key cannot be replaced at once, so the former pair stays in
// use until the new files belong together. Only one Run may run at a time.
func (c *Certificates) Run(ctx context.Context) {
	kubehttp.ReloadFiles(ctx, c.log, "a new certificate", c.reload)
}

// reload reads the files, and reports whether the serving certificate has changed.
func (c *Certificates) reload(ctx context.Context) (changed bool, err error) {
	before := c.pem()
	if err = c.serving.RunOnce(ctx); err != nil {
		err = fmt.Errorf("%s: %w", c.serving.Name(), err) // the name has the paths of both files
	}
	if c.clientCA != nil {
		err = errors.Join(err, c.clientCA.RunOnce(ctx))
	}
	err = errors.Join(err, c.settings.RunOnce())
	return !bytes.Equal(before, c.pem()), err
}

// pem returns the serving certificate and those above it in PEM.
func (c *Certificates) pem() []byte {
	certificate, _ := c.serving.CurrentCertKeyContent()
	return certificate
}

// Lacking returns the names and addresses among hosts that are not in the serving certificate.
func (c *Certificates) Lacking(hosts []string) (lacking []string) {
	chain := parse(c.pem())
	for _, host := range hosts {
		if len(chain) == 0 || chain[0].VerifyHostname(host) != nil {
			lacking = append(lacking, host)
		}
	}
	return lacking
}

// Expiry is the time at which a certificate in use ends, or of a chain or a file with several CAs, the first to end.
type Expiry struct {
	// Name is "serving", or "client-ca".
	Name     string
	NotAfter time.Time
}

// Expiries returns the Expiry of the serving certificate, and then that of the CAs of clients.
func (c *Certificates) Expiries() []Expiry {
	all := []Expiry{{Name: "serving", NotAfter: firstEnd(parse(c.pem()))}}
	if ca := c.clientCA; ca != nil {
		all = append(all, Expiry{Name: "client-ca", NotAfter: firstEnd(parse(ca.CurrentCABundleContent()))})
	}
	return all
}

// firstEnd returns the time at which the first of the certificates ends.
func firstEnd(certificates []*x509.Certificate) (first time.Time) {
	for _, c := range certificates {
		if first.IsZero() || c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	return first
}

// parse returns the certificates in pem, which was checked when it was read.
func parse(pem []byte) []*x509.Certificate {
	certificates, _ := cert.ParseCertsPEM(pem)
	return certificates
}
