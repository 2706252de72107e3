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

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

func mustLoad(t *testing.T, c CertificatesConfig, log *slog.Logger) *Certificates {
	t.Helper()
	certificates, err := NewCertificates(c, log)
	expect.NoError(t, err)
	return certificates
}

// newPair makes the files of a pair.
func newPair(t *testing.T, hosts ...string) CertificatesConfig {
	t.Helper()
	certPath, keyPath, err := SelfSigned(t.TempDir(), hosts)
	expect.NoError(t, err)
	return CertificatesConfig{CertFile: certPath, KeyFile: keyPath}
}

// newCA makes a file with a CA, and loads it.
func newCA(t *testing.T) (path string, ca *ClientCA) {
	t.Helper()
	path = newPair(t).CertFile
	ca, err := LoadClientCA(path)
	expect.NoError(t, err)
	return path, ca
}

// copyFile overwrites to.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	expect.NoError(t, err)
	expect.NoError(t, os.WriteFile(to, data, 0o600))
}

// greeted are the settings for a client that has said hello.
func greeted(t *testing.T, settings *tls.Config) *tls.Config {
	t.Helper()
	client, server := net.Pipe()
	defer func() { _, _ = client.Close(), server.Close() }()
	config, err := settings.GetConfigForClient(&tls.ClientHelloInfo{Conn: server})
	expect.NoError(t, err)
	return config
}

// TestFilesAreReadAgain: what is served follows its files, and what is broken changes nothing and is
// said once.
func TestFilesAreReadAgain(t *testing.T) {
	pair, next, records := newPair(t), newPair(t), &proxytest.Recorder{}
	caFile, ca := newCA(t)
	pair.ClientCA = ca
	certificates := mustLoad(t, pair, slog.New(records))
	synctest.Test(t, func(t *testing.T) {
		proxytest.RunInBubble(t, certificates.Run)
		look := func() []byte {
			time.Sleep(2 * kubehttp.ReloadInterval) // of the bubble's time
			synctest.Wait()
			main, connect := greeted(t, certificates.TLS()).Certificates[0], greeted(t, certificates.ConnectTLS()).Certificates[0]
			expect.Same(t, main.Certificate, connect.Certificate) // at both ports
			return main.Certificate[0]
		}
		first := look()
		if said := records.Above(slog.LevelDebug); len(said) > 0 {
			t.Errorf("nothing has changed, and it says %q", said)
		}
		copyFile(t, next.CertFile, pair.CertFile) // and not yet its key
		if !bytes.Equal(look(), first) {
			t.Error("half of a new pair is used")
		}
		copyFile(t, next.KeyFile, pair.KeyFile)
		second := look()
		if bytes.Equal(second, first) {
			t.Error("the new pair is not used")
		}
		expect.NoError(t, os.Remove(pair.CertFile))
		if !bytes.Equal(look(), second) {
			t.Error("the pair went with its file")
		}
		copyFile(t, next.CertFile, pair.CertFile)
		pool := func() *x509.CertPool { options, _ := ca.VerifyOptions(); return options.Roots }
		before := pool()
		expect.NoError(t, os.WriteFile(caFile, []byte("half"), 0o600))
		if look(); !pool().Equal(before) {
			t.Error("a broken file of CAs is used")
		}
		copyFile(t, next.CertFile, caFile)
		if look(); pool().Equal(before) {
			t.Error("the new CAs are not used")
		}
		warnings := records.Above(slog.LevelInfo)
		for i, file := range []string{pair.KeyFile, pair.CertFile, caFile} { // half a pair, no file, half a file
			if len(warnings) != 3 || !strings.Contains(warnings[i], file) || !strings.Contains(warnings[i], "the one before stays") {
				t.Errorf("the warnings are %q, want three, number %d about %s", warnings, i, file)
			}
		}
		for _, text := range records.Above(slog.LevelDebug - 1) {
			proxytest.AssertNotContains(t, text, "PRIVATE KEY")
		}
	})
}

// TestPairsThatCannotBeUsed: the error names the files, and says what to do.
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
	if _, err := LoadClientCA(pair.KeyFile); err == nil || !strings.Contains(err.Error(), pair.KeyFile) {
		t.Errorf("a file without CAs: %v", err)
	}
}

// TestSettings: clients are asked for a certificate at the main port, and in tunnels, if there are CAs. It is not
// verified yet. The version of TLS is 1.2 at least, or what is given, at both ports. ([test/e2e/attacks] shakes hands.)
func TestSettings(t *testing.T) {
	pair := newPair(t)
	_, ca := newCA(t)
	for _, tt := range []struct {
		ca           *ClientCA
		given, least uint16 // versions
		asks         tls.ClientAuthType
	}{
		{least: tls.VersionTLS12, asks: tls.NoClientCert},
		{ca: ca, given: tls.VersionTLS12, least: tls.VersionTLS12, asks: tls.RequestClientCert},
		{ca: ca, given: tls.VersionTLS13, least: tls.VersionTLS13, asks: tls.RequestClientCert},
	} {
		pair.ClientCA, pair.MinVersion = tt.ca, tt.given
		c := mustLoad(t, pair, proxytest.DiscardLog())
		main, connect := greeted(t, c.TLS()), greeted(t, c.ConnectTLS())
		expect.Same(t, []tls.ClientAuthType{tt.asks, tls.NoClientCert}, []tls.ClientAuthType{main.ClientAuth, connect.ClientAuth})
		expect.Same(t, []uint16{tt.least, tt.least}, []uint16{main.MinVersion, connect.MinVersion})
		expect.Same(t, [][]string{{"h2", "http/1.1"}, {"http/1.1"}}, [][]string{main.NextProtos, connect.NextProtos})
	}
}

// TestExpiries: of a chain and of a file with CAs, the first counts, and what is in use now.
func TestExpiries(t *testing.T) {
	pair, ca := newPair(t), proxytest.NewCA(t)
	leaf := ca.Issue(t, pkix.Name{}, func(c *x509.Certificate) { c.NotAfter = ca.Cert.NotAfter.Add(time.Minute) })
	chain, err := cert.EncodeCertificates(leaf, ca.Cert)
	expect.NoError(t, err)
	expect.NoError(t, cert.WriteCert(pair.CertFile, chain))
	key, err := keyutil.MarshalPrivateKeyToPEM(ca.Key)
	expect.NoError(t, err)
	expect.NoError(t, keyutil.WriteKey(pair.KeyFile, key))
	pair.ClientCA, err = LoadClientCA(pair.CertFile)
	expect.NoError(t, err)
	c := mustLoad(t, pair, proxytest.DiscardLog())
	want := []Expiry{{Name: "serving", NotAfter: ca.Cert.NotAfter}, {Name: "client-ca", NotAfter: ca.Cert.NotAfter}}
	expect.Same(t, want, c.Expiries())
}

// TestLacking: the names that a certificate does not have are told.
func TestLacking(t *testing.T) {
	c := mustLoad(t, newPair(t, "api.example", "10.0.0.1", "fd00::a"), proxytest.DiscardLog())
	got := c.MissingHosts([]string{"api.example", "10.0.0.1", "fd00::a", "fd00::b", "other.example", "10.0.0.2"})
	expect.Same(t, []string{"fd00::b", "other.example", "10.0.0.2"}, got)
}
