package serve

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
func newPair(t *testing.T, hosts ...string) (certPath, keyPath string) {
	t.Helper()
	certPath, keyPath, err := SelfSigned(t.TempDir(), hosts)
	expect.NoError(t, err)
	return certPath, keyPath
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
	certPath, keyPath := newPair(t)
	nextCert, nextKey := newPair(t)
	caPath, _ := newPair(t)
	records := &proxytest.Recorder{}
	ca, err := LoadClientCA(caPath)
	expect.NoError(t, err)
	certificates := mustLoad(t, CertificatesConfig{CertFile: certPath, KeyFile: keyPath, ClientCA: ca}, slog.New(records))
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { certificates.Run(ctx) })
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
		proxytest.CopyFile(t, nextCert, certPath) // and not yet its key
		if !bytes.Equal(look(), first) {
			t.Error("half of a new pair is used")
		}
		proxytest.CopyFile(t, nextKey, keyPath)
		second := look()
		if bytes.Equal(second, first) {
			t.Error("the new pair is not used")
		}
		proxytest.Remove(t, certPath)
		if !bytes.Equal(look(), second) {
			t.Error("the pair went with its file")
		}
		pool := func() *x509.CertPool { options, _ := ca.VerifyOptions(); return options.Roots }
		before := pool()
		expect.NoError(t, os.WriteFile(caPath, []byte("half"), 0o600))
		if look(); !pool().Equal(before) {
			t.Error("a broken file of CAs is used")
		}
		proxytest.CopyFile(t, nextCert, caPath)
		if look(); pool().Equal(before) {
			t.Error("the new CAs are not used")
		}
		stop()
		running.Wait()

		warnings := records.Above(slog.LevelInfo)
		for i, file := range []string{keyPath, certPath, caPath} { // half a pair, no file, half a file
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
	certPath, keyPath := newPair(t)
	_, otherKey := newPair(t)
	empty := filepath.Join(t.TempDir(), "empty")
	expect.NoError(t, os.WriteFile(empty, nil, 0o600))
	for name, files := range map[string][2]string{
		"no such certificate":    {"/no/such.crt", keyPath},
		"no such key":            {certPath, "/no/such.key"},
		"key of another":         {certPath, otherKey},
		"no certificate":         {keyPath, keyPath},
		"a key to be":            {certPath, empty},
		"a folder instead of it": {certPath, filepath.Dir(keyPath)},
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
	if _, err := LoadClientCA(keyPath); err == nil || !strings.Contains(err.Error(), keyPath) {
		t.Errorf("a file without CAs: %v", err)
	}
}

// TestAskingForCertificates: clients are asked if there are CAs, at the main port and in tunnels, and
// their certificate arrives unverified, and again in a resumed session.
func TestAskingForCertificates(t *testing.T) {
	certPath, keyPath := newPair(t)
	caPath, _ := newPair(t)
	ca, err := LoadClientCA(caPath)
	expect.NoError(t, err)
	with := mustLoad(t, CertificatesConfig{CertFile: certPath, KeyFile: keyPath, ClientCA: ca}, proxytest.DiscardLog())
	without := mustLoad(t, CertificatesConfig{CertFile: certPath, KeyFile: keyPath}, proxytest.DiscardLog())
	own, err := tls.LoadX509KeyPair(certPath, keyPath)
	expect.NoError(t, err)
	dial := func(server *tls.Config, cache tls.ClientSessionCache) (asked bool, state tls.ConnectionState) {
		// Not a net.Pipe, which has no buffer: in a resumed session both ends write at once.
		l := proxytest.Listen(t)
		defer func() { _ = l.Close() }()
		a, err := net.Dial("tcp", l.Addr().String())
		expect.NoError(t, err)
		b, err := l.Accept()
		expect.NoError(t, err)
		client := tls.Client(a, &tls.Config{
			InsecureSkipVerify: true,
			ClientSessionCache: cache,
			ServerName:         "localhost",
			NextProtos:         []string{"h2", "http/1.1"},
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				asked = true
				return &own, nil
			},
		})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.ReadAll(client) // also the session's ticket
		}()
		conn := tls.Server(b, server)
		expect.NoError(t, conn.HandshakeContext(t.Context()))
		state = conn.ConnectionState()
		_ = conn.Close()
		<-ended
		_ = client.Close()
		return asked, state
	}
	cache := tls.NewLRUClientSessionCache(1)
	main := with.TLS()
	if asked, state := dial(main, cache); !asked || len(state.PeerCertificates) != len(own.Certificate) || len(state.VerifiedChains) > 0 || state.NegotiatedProtocol != "h2" {
		t.Errorf("asked: %t, with %d certificates, over %s", asked, len(state.PeerCertificates), state.NegotiatedProtocol)
	}
	if _, state := dial(main, cache); !state.DidResume || len(state.PeerCertificates) != len(own.Certificate) {
		t.Errorf("resumed: %t, with %d certificates", state.DidResume, len(state.PeerCertificates))
	}
	if asked, state := dial(with.ConnectTLS(), nil); asked || state.NegotiatedProtocol != "http/1.1" {
		t.Errorf("the port for CONNECT asked: %t, over %s", asked, state.NegotiatedProtocol)
	}
	if asked, state := dial(without.TLS(), nil); asked || len(state.PeerCertificates) > 0 {
		t.Error("asked without a CA")
	}
}

// TestLowestVersion is 1.2, or what is given, at both ports.
func TestLowestVersion(t *testing.T) {
	certPath, keyPath := newPair(t)
	for lowest, refused := range map[uint16]uint16{0: tls.VersionTLS11, tls.VersionTLS12: tls.VersionTLS11, tls.VersionTLS13: tls.VersionTLS12} {
		c := mustLoad(t, CertificatesConfig{CertFile: certPath, KeyFile: keyPath, MinVersion: lowest}, proxytest.DiscardLog())
		for name, settings := range map[string]*tls.Config{"main": c.TLS(), "CONNECT": c.ConnectTLS()} {
			handshake := func(highest uint16) error {
				l := proxytest.Listen(t)
				defer func() { _ = l.Close() }()
				go func() {
					if conn, err := l.Accept(); err == nil {
						_ = tls.Server(conn, settings).HandshakeContext(t.Context())
						_ = conn.Close()
					}
				}()
				conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: highest})
				if err == nil {
					_ = conn.Close()
				}
				return err
			}
			if err := handshake(refused + 1); err != nil {
				t.Errorf("%s, at least %x: %v", name, lowest, err)
			}
			if err := handshake(refused); err == nil {
				t.Errorf("%s, at least %x: %x was accepted", name, lowest, refused)
			}
		}
	}
}

// TestExpiries: of a chain and of a file with CAs, the first counts, and what is in use now.
func TestExpiries(t *testing.T) {
	certPath, keyPath := newPair(t)
	made, err := tls.LoadX509KeyPair(certPath, keyPath)
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
	expect.NoError(t, cert.WriteCert(certPath, chain))
	clients, err := LoadClientCA(certPath)
	expect.NoError(t, err)
	c := mustLoad(t, CertificatesConfig{CertFile: certPath, KeyFile: keyPath, ClientCA: clients}, proxytest.DiscardLog())
	want := []Expiry{{Name: "serving", NotAfter: ca.Cert.NotAfter}, {Name: "client-ca", NotAfter: ca.Cert.NotAfter}}
	expect.Same(t, want, c.Expiries())
}

func TestLacking(t *testing.T) {
	certPath, keyPath := newPair(t, "api.example", "10.0.0.1", "fd00::a")
	c := mustLoad(t, CertificatesConfig{CertFile: certPath, KeyFile: keyPath}, proxytest.DiscardLog())
	got := c.Lacking([]string{"api.example", "10.0.0.1", "fd00::a", "fd00::b", "other.example", "10.0.0.2"})
	expect.Same(t, []string{"fd00::b", "other.example", "10.0.0.2"}, got)
}
