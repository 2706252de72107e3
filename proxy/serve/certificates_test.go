package serve

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/cert"

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

// newCA makes a file with a CA.
func newCA(t *testing.T) *ClientCA {
	t.Helper()
	ca, err := LoadClientCA(newPair(t).CertFile)
	expect.NoError(t, err)
	return ca
}

// copyFile overwrites to.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	expect.NoError(t, err)
	expect.NoError(t, os.WriteFile(to, data, 0o600))
}

// shown is the certificate that a client with these settings is shown.
func shown(t *testing.T, settings *tls.Config) *tls.Certificate {
	t.Helper()
	client, server := net.Pipe()
	defer func() { _, _ = client.Close(), server.Close() }()
	config, err := settings.GetConfigForClient(&tls.ClientHelloInfo{Conn: server})
	expect.NoError(t, err)
	return &config.Certificates[0]
}

// TestFilesAreReadAgain: what is served follows its files, and what is broken changes nothing and is
// said once.
func TestFilesAreReadAgain(t *testing.T) {
	pair, next, ca, records := newPair(t), newPair(t), newCA(t), &proxytest.Recorder{}
	pair.ClientCA = ca
	certificates := mustLoad(t, pair, slog.New(records))
	synctest.Test(t, func(t *testing.T) {
		proxytest.RunInBubble(t, certificates.Run)
		look := func() []byte {
			time.Sleep(2 * readEvery) // of the bubble's time
			synctest.Wait()
			main, connect := shown(t, certificates.TLS()), shown(t, certificates.ConnectTLS())
			if !bytes.Equal(main.Certificate[0], connect.Certificate[0]) {
				t.Error("the ports show two certificates")
			}
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
		pool := func() *x509.CertPool { options, _ := ca.VerifyOptions(); return options.Roots }
		before := pool()
		expect.NoError(t, os.WriteFile(ca.path, []byte("half"), 0o600))
		if look(); !pool().Equal(before) {
			t.Error("a broken file of CAs is used")
		}
		copyFile(t, next.CertFile, ca.path)
		if look(); pool().Equal(before) {
			t.Error("the new CAs are not used")
		}
		warnings := records.Above(slog.LevelInfo)
		for i, file := range []string{pair.KeyFile, pair.CertFile, ca.path} { // half a pair, no file, half a file
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
	pair, other := newPair(t), newPair(t)
	empty := filepath.Join(t.TempDir(), "empty")
	expect.NoError(t, os.WriteFile(empty, nil, 0o600))
	for name, files := range map[string][2]string{
		"no such certificate":    {"/no/such.crt", pair.KeyFile},
		"no such key":            {pair.CertFile, "/no/such.key"},
		"key of another":         {pair.CertFile, other.KeyFile},
		"no certificate":         {pair.KeyFile, pair.KeyFile},
		"a key to be":            {pair.CertFile, empty},
		"a folder instead of it": {pair.CertFile, filepath.Dir(pair.KeyFile)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewCertificates(CertificatesConfig{CertFile: files[0], KeyFile: files[1]}, proxytest.DiscardLog())
			if err == nil {
				t.Fatal("no error")
			}
			expect.Says(t, err.Error(), files[0], files[1], "there must be", "PEM", "may read")
			proxytest.AssertNotContains(t, err.Error(), "BEGIN")
		})
	}
	if _, err := LoadClientCA(pair.KeyFile); err == nil || !strings.Contains(err.Error(), pair.KeyFile) {
		t.Errorf("a file without CAs: %v", err)
	}
}

// shake has a client and a server with these settings shake hands, and returns what the server knows then.
// It is over TCP: a net.Pipe has no buffer, and in a resumed session both ends write at once.
func shake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	l := proxytest.Listen(t)
	defer func() { _ = l.Close() }()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if conn, err := tls.Dial("tcp", l.Addr().String(), client); err == nil {
			_, _ = io.ReadAll(conn) // also the session's ticket
			_ = conn.Close()
		}
	}()
	accepted, err := l.Accept()
	expect.NoError(t, err)
	conn := tls.Server(accepted, server)
	err = conn.HandshakeContext(t.Context())
	state := conn.ConnectionState()
	_ = conn.Close()
	<-ended
	return state, err
}

// TestAskingForCertificates: clients are asked if there are CAs, at the main port and in tunnels, and
// their certificate arrives unverified, and again in a resumed session.
func TestAskingForCertificates(t *testing.T) {
	pair := newPair(t)
	without := mustLoad(t, pair, proxytest.DiscardLog())
	pair.ClientCA = newCA(t)
	with := mustLoad(t, pair, proxytest.DiscardLog())
	own, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	expect.NoError(t, err)
	cache, main := tls.NewLRUClientSessionCache(1), with.TLS()
	for _, tt := range []struct {
		name           string
		server         *tls.Config
		cache          tls.ClientSessionCache
		asked, resumed bool
		shown          int // certificates
		protocol       string
	}{
		{"with CAs", main, cache, true, false, len(own.Certificate), "h2"},
		{"again", main, cache, false, true, len(own.Certificate), "h2"},
		{"the port for CONNECT", with.ConnectTLS(), nil, false, false, 0, "http/1.1"},
		{"without CAs", without.TLS(), nil, false, false, 0, "h2"},
	} {
		asked := false
		state, err := shake(t, tt.server, &tls.Config{
			InsecureSkipVerify: true,
			ClientSessionCache: tt.cache,
			ServerName:         "localhost",
			NextProtos:         []string{"h2", "http/1.1"},
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				asked = true
				return &own, nil
			},
		})
		if err != nil || asked != tt.asked || state.DidResume != tt.resumed || len(state.PeerCertificates) != tt.shown ||
			len(state.VerifiedChains) > 0 || state.NegotiatedProtocol != tt.protocol {
			t.Errorf("%s: asked %t, resumed %t, %d certificates, %d verified, over %q, %v", tt.name, asked, state.DidResume,
				len(state.PeerCertificates), len(state.VerifiedChains), state.NegotiatedProtocol, err)
		}
	}
}

// TestLowestVersion is 1.2, or what is given, at both ports.
func TestLowestVersion(t *testing.T) {
	pair := newPair(t)
	for lowest, refused := range map[uint16]uint16{0: tls.VersionTLS11, tls.VersionTLS12: tls.VersionTLS11, tls.VersionTLS13: tls.VersionTLS12} {
		pair.MinVersion = lowest
		c := mustLoad(t, pair, proxytest.DiscardLog())
		for port, settings := range map[string]*tls.Config{"main": c.TLS(), "CONNECT": c.ConnectTLS()} {
			for highest, taken := range map[uint16]bool{refused: false, refused + 1: true} {
				client := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: highest}
				if _, err := shake(t, settings, client); (err == nil) != taken {
					t.Errorf("%s, at least %x, of a client that knows %x: %v", port, lowest, highest, err)
				}
			}
		}
	}
}

// TestExpiries: of a chain and of a file with CAs, the first counts, and what is in use now.
func TestExpiries(t *testing.T) {
	pair := newPair(t)
	made, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	expect.NoError(t, err)
	key, ok := made.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatal("no ECDSA key")
	}
	ca := proxytest.NewCA(t)
	leaf := *made.Leaf
	leaf.NotAfter = ca.Cert.NotAfter.Add(time.Minute)
	chain, err := cert.EncodeCertificates(proxytest.Sign(t, &leaf, ca.Cert, key, ca.Key), ca.Cert)
	expect.NoError(t, err)
	expect.NoError(t, cert.WriteCert(pair.CertFile, chain))
	pair.ClientCA, err = LoadClientCA(pair.CertFile)
	expect.NoError(t, err)
	c := mustLoad(t, pair, proxytest.DiscardLog())
	want := []Expiry{{Name: "serving", NotAfter: ca.Cert.NotAfter}, {Name: "client-ca", NotAfter: ca.Cert.NotAfter}}
	expect.Same(t, want, c.Expiries())
}

func TestLacking(t *testing.T) {
	c := mustLoad(t, newPair(t, "api.example", "10.0.0.1", "fd00::a"), proxytest.DiscardLog())
	got := c.Lacking([]string{"api.example", "10.0.0.1", "fd00::a", "fd00::b", "other.example", "10.0.0.2"})
	expect.Same(t, []string{"fd00::b", "other.example", "10.0.0.2"}, got)
}
