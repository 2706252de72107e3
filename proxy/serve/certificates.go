package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"
)

// Certificates has the serving certificate, which is the same at all ports, and the CAs of clients. While Run runs,
// their files may be replaced at any time; open connections keep their certificates. It is safe for concurrent use.
type Certificates struct {
	serving  *dynamiccertificates.DynamicCertKeyPairContent
	clientCA *ClientCA // nil: none
	settings *dynamiccertificates.DynamicServingCertificateController
	files    []watchedFiles
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

// readInterval is the time between two reads of the files. They are small, and reading notices every way of replacing
// them: the kubelet's symlinks, cert-manager, an editor.
const readInterval = 5 * time.Second

// watchedFiles are files that are read again. needed describes their content for the log.
type watchedFiles struct {
	needed string
	read   func(context.Context) error
}

// NewCertificates returns the Certificates in the files of c.
func NewCertificates(c CertificatesConfig, log *slog.Logger) (*Certificates, error) {
	needed := fmt.Sprintf("a certificate in %s and its private key in %s, PEM", c.CertFile, c.KeyFile)
	serving, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%w: there must be %s, that this process may read", err, needed)
	}
	certificates := &Certificates{
		serving: serving, clientCA: c.ClientCA, log: log,
		files: []watchedFiles{{needed: needed, read: serving.RunOnce}},
	}
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
		clientCAs = ca.content
		caFile := watchedFiles{needed: "CA certificates in " + ca.path + ", PEM", read: ca.content.RunOnce}
		certificates.files = append(certificates.files, caFile)
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

// Run reads the files again until ctx ends. Files that cannot be used change nothing, and are logged once. Certificate
// and key cannot be replaced at once, so the former pair stays in use until the new files belong together. Only one Run
// may run at a time.
func (c *Certificates) Run(ctx context.Context) {
	ticker := time.NewTicker(readInterval)
	defer ticker.Stop()
	logged := make([]string, len(c.files))
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		before := c.pem()
		for i, f := range c.files {
			problem := ""
			if err := f.read(ctx); err != nil {
				problem = err.Error()
			}
			if problem != "" && problem != logged[i] {
				c.log.Warn("a new certificate cannot be used: the one before stays in use", "error", problem,
					"needed", f.needed+", that this process may read")
			}
			logged[i] = problem
		}
		if err := c.settings.RunOnce(); err != nil {
			c.log.Warn("new certificates cannot be used: those before stay in use", "error", err)
		} else if !bytes.Equal(before, c.pem()) {
			c.log.Info("a new certificate is in use", "until", c.Expiries()[0].NotAfter.UTC())
		}
	}
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
		all = append(all, Expiry{Name: "client-ca", NotAfter: firstEnd(parse(ca.content.CurrentCABundleContent()))})
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
