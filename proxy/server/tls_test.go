package server

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/listproxy/listproxy/proxy/certs"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/test/expect"
)

// TestAskingForCertificates: clients are asked if there are CAs, and their certificate arrives
// unverified, and again in a resumed session.
func TestAskingForCertificates(t *testing.T) {
	var pool *x509.CertPool
	pair, _, err := certs.ServingFromDir(t.TempDir(), nil, proxytest.DiscardLog())
	expect.NoError(t, err)
	server := TLS{ClientCAs: func() *x509.CertPool { return pool }}.Config(pair.Get)
	cache := tls.NewLRUClientSessionCache(1)
	dial := func() (asked bool, state tls.ConnectionState) {
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
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				asked = true
				return pair.Get(nil)
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
	if asked, state := dial(); asked || len(state.PeerCertificates) > 0 {
		t.Error("asked without a CA")
	}
	cache = tls.NewLRUClientSessionCache(1)
	pool = x509.NewCertPool()
	if asked, state := dial(); !asked || len(state.PeerCertificates) != 1 || len(state.VerifiedChains) > 0 {
		t.Errorf("asked: %t, with %d certificates", asked, len(state.PeerCertificates))
	}
	if _, state := dial(); !state.DidResume || len(state.PeerCertificates) != 1 {
		t.Errorf("resumed: %t, with %d certificates", state.DidResume, len(state.PeerCertificates))
	}
}

// TestServerWithCertificate serves as the command does, with a made pair.
func TestServerWithCertificate(t *testing.T) {
	pair, ca, err := certs.ServingFromDir(t.TempDir(), nil, proxytest.DiscardLog())
	expect.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	server := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }),
		TLS{}.Config(pair.Get), slog.New(slog.DiscardHandler))
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })

	caPEM, err := os.ReadFile(ca)
	expect.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(caPEM)
	for _, http2 := range []bool{false, true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: http2}
		t.Cleanup(transport.CloseIdleConnections)
		res := proxytest.Get(t, &http.Client{Transport: transport}, "https://"+listener.Addr().String()+"/")
		want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2]
		if got := proxytest.ReadAll(t, res.Body); got != want {
			t.Errorf("spoke %s, want %s", got, want)
		}
	}
	old := &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	if conn, err := tls.Dial("tcp", listener.Addr().String(), old); err == nil {
		_ = conn.Close()
		t.Error("TLS 1.1 was accepted")
	}
}
