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

// readEvery is how often the files of certificates are read again. They are small, and reading them
// notices every way of replacing them: the kubelet's symlinks, cert-manager, an editor.
const readEvery = 5 * time.Second

// CertificatesConfig says where certificates come from.
type CertificatesConfig struct {
	// CertFile and KeyFile have the serving certificate, followed by those up to its root if clients
	// need them, and its key, PEM.
	CertFile, KeyFile string
	// ClientCA verifies the certificates of clients; nil: clients are not asked for one.
	ClientCA *ClientCA
	// MinVersion is the lowest version of TLS, as crypto/tls numbers them; 1.2 if it is 0.
	MinVersion uint16
}

// Certificates are those that clients are shown, the same at all ports, and the CAs of theirs. While
// Run runs, their files may be replaced at any time; open connections keep what they were shown. It
// is safe for concurrent use.
type Certificates struct {
	serving  *dynamiccertificates.DynamicCertKeyPairContent
	clientCA *ClientCA // nil: none
	settings *dynamiccertificates.DynamicServingCertificateController
	files    []files
	log      *slog.Logger
}

// files are some that are read again.
type files struct {
	what string // they should be, for the log
	read func(context.Context) error
}

// NewCertificates reads the files of c.
func NewCertificates(c CertificatesConfig, log *slog.Logger) (*Certificates, error) {
	what := fmt.Sprintf("a certificate in %s and its private key in %s, PEM", c.CertFile, c.KeyFile)
	serving, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%w: there must be %s, that this process may read", err, what)
	}
	made := &Certificates{
		serving: serving, clientCA: c.ClientCA, log: log,
		files: []files{{what: what, read: serving.RunOnce}},
	}
	base := &tls.Config{
		MinVersion: max(c.MinVersion, tls.VersionTLS12),
		NextProtos: []string{"h2", "http/1.1"},
		// Small records at the beginning of a connection would let a browser show the beginning of a
		// page sooner. Clients of an API wait for the whole, and each record is a system call.
		DynamicRecordSizingDisabled: true,
	}
	var named dynamiccertificates.CAContentProvider
	if ca := c.ClientCA; ca != nil {
		// A client may answer without a certificate, and none is verified here: the authenticator does so
		// at every request, so that a connection does not outlive its CA.
		base.ClientAuth, named = tls.RequestClientCert, ca.content
		made.files = append(made.files, files{what: "CA certificates in " + ca.path + ", PEM", read: ca.content.RunOnce})
	}
	made.settings = dynamiccertificates.NewDynamicServingCertificateController(base, named, serving, nil, nil)
	return made, made.settings.RunOnce()
}

// TLS returns the settings of the main port and of the tunnels: HTTP/2 preferred.
func (c *Certificates) TLS() *tls.Config {
	return &tls.Config{
		GetConfigForClient: c.settings.GetConfigForClient,
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"}, // net/http looks here
	}
}

// ConnectTLS returns the settings of the port for CONNECT. It offers HTTP/1.1 only, since Go's
// clients write CONNECT as HTTP/1.1 even after they have agreed on HTTP/2. It asks for no client
// certificate, since callers authenticate inside the tunnel.
func (c *Certificates) ConnectTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		own, err := c.settings.GetConfigForClient(hello) // a copy
		if err == nil {
			own.NextProtos, own.ClientAuth = []string{"http/1.1"}, tls.NoClientCert
		}
		return own, err
	}}
}

// Run reads the files again until ctx ends. What cannot be used is logged once, with the names of its
// files, and changes nothing. Two files cannot be replaced at once: as long as they do not belong
// together, the pair before stays in use. Only one Run may run at a time.
func (c *Certificates) Run(ctx context.Context) {
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	said := make([]string, len(c.files))
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		before := c.pem()
		for i, f := range c.files {
			wrong := ""
			if err := f.read(ctx); err != nil {
				wrong = err.Error()
			}
			if wrong != "" && wrong != said[i] {
				c.log.Warn("a new certificate cannot be used: the one before stays in use", "error", wrong,
					"needed", f.what+", that this process may read")
			}
			said[i] = wrong
		}
		if err := c.settings.RunOnce(); err != nil {
			c.log.Warn("new certificates cannot be used: those before stay in use", "error", err)
		} else if !bytes.Equal(before, c.pem()) {
			c.log.Info("a new certificate is in use", "until", c.Expiries()[0].NotAfter.UTC())
		}
	}
}

// pem is the serving certificate and those above it.
func (c *Certificates) pem() []byte {
	certificate, _ := c.serving.CurrentCertKeyContent()
	return certificate
}

// Lacking returns those of the names and addresses that the serving certificate is not for.
func (c *Certificates) Lacking(hosts []string) (lacking []string) {
	chain := parsed(c.pem())
	for _, host := range hosts {
		if len(chain) == 0 || chain[0].VerifyHostname(host) != nil {
			lacking = append(lacking, host)
		}
	}
	return lacking
}

// Expiry says when a certificate in use ends; for a chain, or a file with several CAs, when the
// first of them ends.
type Expiry struct {
	// Name is "serving", or "client-ca".
	Name     string
	NotAfter time.Time
}

// Expiries returns when the serving certificate ends, and then the CAs of clients', as last read.
func (c *Certificates) Expiries() []Expiry {
	all := []Expiry{{Name: "serving", NotAfter: firstEnd(parsed(c.pem()))}}
	if ca := c.clientCA; ca != nil {
		all = append(all, Expiry{Name: "client-ca", NotAfter: firstEnd(parsed(ca.content.CurrentCABundleContent()))})
	}
	return all
}

// firstEnd is the time at which the first of the certificates ends.
func firstEnd(certificates []*x509.Certificate) (first time.Time) {
	for _, c := range certificates {
		if first.IsZero() || c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	return first
}

// parsed are the certificates in text that was parsed when it was read, so errors are left out.
func parsed(pem []byte) []*x509.Certificate {
	chain, err := cert.ParseCertsPEM(pem)
	if err != nil {
		return nil
	}
	return chain
}
