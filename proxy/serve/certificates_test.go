package serve

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// mustLoad returns the Certificates in the files of cfg.
func mustLoad(t *testing.T, cfg CertificatesConfig, log *slog.Logger) *Certificates {
	t.Helper()
	certificates, err := NewCertificates(cfg, log)
	expect.NoError(t, err)
	return certificates
}

// newPair makes the files of a certificate for hosts, and of its key.
func newPair(t *testing.T, hosts ...string) CertificatesConfig {
	t.Helper()
	certPath, keyPath, err := SelfSigned(t.TempDir(), hosts)
	expect.NoError(t, err)
	return CertificatesConfig{CertFile: certPath, KeyFile: keyPath}
}

// newCA makes a file with a CA for clients, and loads that CA.
func newCA(t *testing.T) (path string, ca *dynamiccertificates.DynamicFileCAContent) {
	t.Helper()
	path = newPair(t).CertFile
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", path)
	expect.NoError(t, err)
	return path, ca
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	expect.NoError(t, err)
	expect.NoError(t, os.WriteFile(to, data, 0o600))
}

// configForClient returns the TLS configuration that a server with settings uses for a client.
func configForClient(t *testing.T, settings *tls.Config) *tls.Config {
	t.Helper()
	client, server := net.Pipe()
	defer func() { _, _ = client.Close(), server.Close() }()
	config, err := settings.GetConfigForClient(&tls.ClientHelloInfo{Conn: server})
	expect.NoError(t, err)
	return config
}

// TestFilesAreReadAgain: at most ten seconds after a change of the files (two of kubehttp.ReloadInterval), both ports use the
// new certificate and the new CAs. A file that cannot be used changes nothing, and is logged once. No key is logged.
func TestFilesAreReadAgain(t *testing.T) {
	used := newPair(t)  // the files that the server uses
	other := newPair(t) // files that the test copies over the used ones
	records := &proxytest.Recorder{}
	caFile, ca := newCA(t)
	firstCAs, err := cert.NewPool(caFile)
	expect.NoError(t, err)
	secondCAs, err := cert.NewPool(other.CertFile)
	expect.NoError(t, err)
	certificateIn := func(cfg CertificatesConfig) []byte {
		pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		expect.NoError(t, err)
		return pair.Certificate[0]
	}
	first, second := certificateIn(used), certificateIn(other)
	used.ClientCA = ca
	certificates := mustLoad(t, used, slog.New(records))
	synctest.Test(t, func(t *testing.T) {
		proxytest.RunInBubble(t, certificates.Run)
		awaitReload := func() {
			time.Sleep(2 * kubehttp.ReloadInterval) // of the bubble's time
			synctest.Wait()
		}
		awaitReload()
		expect.Same(t, []string(nil), records.Above(slog.LevelDebug)) // nothing has changed
		lines := 0                                                    // of the log, before the step
		// The steps come one after the other.
		for _, step := range []struct {
			name             string
			change           func() // of the files
			wantCertificate  []byte
			wantCAs          *x509.CertPool
			wantWarningAbout string // a file; "": no warning
		}{
			{
				name: "a new certificate with the old key", change: func() { copyFile(t, other.CertFile, used.CertFile) },
				wantCertificate: first, wantCAs: firstCAs, wantWarningAbout: used.KeyFile,
			},
			{
				name: "a new certificate with its key", change: func() { copyFile(t, other.KeyFile, used.KeyFile) },
				wantCertificate: second, wantCAs: firstCAs,
			},
			{
				name: "no certificate", change: func() { expect.NoError(t, os.Remove(used.CertFile)) },
				wantCertificate: second, wantCAs: firstCAs, wantWarningAbout: used.CertFile,
			},
			{
				name: "the new certificate again", change: func() { copyFile(t, other.CertFile, used.CertFile) },
				wantCertificate: second, wantCAs: firstCAs,
			},
			{
				name: "CAs that are not whole", change: func() { expect.NoError(t, os.WriteFile(caFile, []byte("half"), 0o600)) },
				wantCertificate: second, wantCAs: firstCAs, wantWarningAbout: caFile,
			},
			{
				name: "new CAs", change: func() { copyFile(t, other.CertFile, caFile) },
				wantCertificate: second, wantCAs: secondCAs,
			},
		} {
			step.change()
			awaitReload()
			for port, settings := range map[string]*tls.Config{"main": certificates.TLS(), "CONNECT": certificates.ConnectTLS()} {
				served := configForClient(t, settings).Certificates[0]
				if leaf := served.Certificate[0]; !bytes.Equal(leaf, step.wantCertificate) {
					t.Errorf("%s: another certificate is served at the %s port", step.name, port)
				}
			}
			if options, _ := ca.VerifyOptions(); !options.Roots.Equal(step.wantCAs) {
				t.Errorf("%s: other CAs are in use", step.name)
			}
			logged := records.Above(slog.LevelInfo)[lines:] // the warnings of this step
			lines += len(logged)
			if step.wantWarningAbout == "" {
				expect.Same(t, 0, len(logged))
				continue
			}
			expect.Same(t, 1, len(logged))
			expect.Says(t, strings.Join(logged, "\n"), step.wantWarningAbout, "the one before stays")
		}
		for _, text := range records.Above(belowAllLevels) {
			proxytest.AssertNotContains(t, text, "PRIVATE KEY")
		}
	})
}

// TestPairsThatCannotBeUsed: NewCertificates returns an error for files that it cannot use. The error names the files, says
// what to do, and quotes nothing of their content.
func TestPairsThatCannotBeUsed(t *testing.T) {
	pair := newPair(t)
	for _, keyFile := range []string{"/no/such.key", newPair(t).KeyFile} {
		_, err := NewCertificates(CertificatesConfig{CertFile: pair.CertFile, KeyFile: keyFile}, proxytest.DiscardLog())
		if err == nil {
			t.Fatalf("%s: no error", keyFile)
		}
		expect.Says(t, err.Error(), pair.CertFile, keyFile, "there must be", "PEM", "may read")
		proxytest.AssertNotContains(t, err.Error(), "BEGIN")
	}
}

// TestTLSSettings: the main port asks clients for a certificate if there are CAs. The handshake does not verify the
// certificate. The port for CONNECT never asks: clients are asked inside its tunnels ([test/e2e/attacks]). At both ports, the
// lowest version of TLS is MinVersion, or 1.2 by default. Only the main port offers HTTP/2.
func TestTLSSettings(t *testing.T) {
	pair := newPair(t)
	_, ca := newCA(t)
	for name, tt := range map[string]struct {
		ca             *dynamiccertificates.DynamicFileCAContent
		minVersion     uint16 // of the configuration
		wantMinVersion uint16
		wantClientAuth tls.ClientAuthType // at the main port
	}{
		"the defaults": {wantMinVersion: tls.VersionTLS12, wantClientAuth: tls.NoClientCert},
		"CAs, TLS 1.2": {ca: ca, minVersion: tls.VersionTLS12, wantMinVersion: tls.VersionTLS12, wantClientAuth: tls.RequestClientCert},
		"CAs, TLS 1.3": {ca: ca, minVersion: tls.VersionTLS13, wantMinVersion: tls.VersionTLS13, wantClientAuth: tls.RequestClientCert},
	} {
		t.Run(name, func(t *testing.T) {
			pair.ClientCA, pair.MinVersion = tt.ca, tt.minVersion
			certificates := mustLoad(t, pair, proxytest.DiscardLog())
			main := configForClient(t, certificates.TLS())
			connect := configForClient(t, certificates.ConnectTLS())
			expect.Same(t, tt.wantClientAuth, main.ClientAuth)
			expect.Same(t, tls.NoClientCert, connect.ClientAuth)
			expect.Same(t, tt.wantMinVersion, main.MinVersion)
			expect.Same(t, tt.wantMinVersion, connect.MinVersion)
			expect.Same(t, []string{"h2", "http/1.1"}, main.NextProtos)
			expect.Same(t, []string{"http/1.1"}, connect.NextProtos)
		})
	}
}

// TestExpiries: Expiries has the earliest NotAfter of the serving chain, and that of the client CAs.
func TestExpiries(t *testing.T) {
	pair := newPair(t)
	ca := proxytest.NewCA(t) // which expires a minute before its leaf
	leaf := ca.Issue(t, pkix.Name{}, func(leaf *x509.Certificate) { leaf.NotAfter = ca.Cert.NotAfter.Add(time.Minute) })
	chain, err := cert.EncodeCertificates(leaf, ca.Cert)
	expect.NoError(t, err)
	expect.NoError(t, cert.WriteCert(pair.CertFile, chain))
	key, err := keyutil.MarshalPrivateKeyToPEM(ca.Key)
	expect.NoError(t, err)
	expect.NoError(t, keyutil.WriteKey(pair.KeyFile, key))
	pair.ClientCA, err = dynamiccertificates.NewDynamicCAContentFromFile("client-ca", pair.CertFile)
	expect.NoError(t, err)
	want := map[string]time.Time{"serving": ca.Cert.NotAfter, "client-ca": ca.Cert.NotAfter}
	expect.Same(t, want, mustLoad(t, pair, proxytest.DiscardLog()).Expiries())
}

// TestMissingHosts: MissingHosts returns the names and addresses that the certificate does not cover.
func TestMissingHosts(t *testing.T) {
	certificates := mustLoad(t, newPair(t, "api.example", "10.0.0.1", "fd00::a"), proxytest.DiscardLog())
	got := certificates.MissingHosts([]string{"api.example", "10.0.0.1", "fd00::a", "fd00::b", "other.example", "10.0.0.2"})
	expect.Same(t, []string{"fd00::b", "other.example", "10.0.0.2"}, got)
}
