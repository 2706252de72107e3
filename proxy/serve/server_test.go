package serve

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestServerBoundsHeaders at a length of its own: that the bound is what is documented.
func TestServerBoundsHeaders(t *testing.T) {
	const most = 64 << 10
	server := startProxy(t, http.NotFoundHandler(), false)
	res, _, _ := proxytest.SendRaw(t, server, "GET / HTTP/1.1\r\nHost: x\r\nX-Large: "+strings.Repeat("x", most+8<<10)+"\r\n\r\n")
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %s, want 431", res.Status)
	}
}

// TestManyHeaderValues: both servers take more than the 500 at which net/http stops from Go 1.27 on.
func TestManyHeaderValues(t *testing.T) {
	many := strings.Repeat("X-Value: x\r\n", 1000)
	server := startProxy(t, http.NotFoundHandler(), false)
	res, _, _ := proxytest.SendRaw(t, server, "GET / HTTP/1.1\r\nHost: x\r\n"+many+"\r\n")
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("over HTTP/1.1: %s", res.Status)
	}

	server = startProxy(t, http.NotFoundHandler(), true)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	expect.NoError(t, err)
	req.Header["X-Value"] = slices.Repeat([]string{"x"}, 1000)
	res, err = server.Client().Do(req)
	expect.NoError(t, err)
	expect.NoError(t, res.Body.Close())
	if res.StatusCode != http.StatusNotFound || res.ProtoMajor != 2 {
		t.Errorf("over %s: %s", res.Proto, res.Status)
	}

	log := slog.New(slog.DiscardHandler)
	connect := proxytest.Serve(t, NewConnect(NewTunnels(mustTargets(t, "https://"+upstreamName), nil), nil, observetest.Unread(), log), false)
	res, _, _ = proxytest.SendRaw(t, connect, "CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere:443\r\n"+many+"\r\n")
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("CONNECT: %s", res.Status)
	}
}

// TestServerAnnouncesHeaderBound: over HTTP/2 the server says how much it takes, so Go's client does
// not even send more.
func TestServerAnnouncesHeaderBound(t *testing.T) {
	var came atomic.Int64
	server := startProxy(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came.Add(1) }), true)
	get := func(header string) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		expect.NoError(t, err)
		req.Header.Set("X-Large", header)
		res, err := server.Client().Do(req)
		if err == nil {
			err = res.Body.Close()
		}
		return err
	}
	expect.NoError(t, get("small"))
	if err := get(strings.Repeat("x", 72<<10)); err == nil || !strings.Contains(err.Error(), "larger than peer's advertised limit") {
		t.Errorf("a large header: %v", err)
	}
	if n := came.Load(); n != 1 {
		t.Errorf("%d requests came", n)
	}
}

// TestServerWithCertificate serves as the command does, with a made pair.
func TestServerWithCertificate(t *testing.T) {
	certPath, keyPath, err := SelfSigned(t.TempDir(), nil)
	expect.NoError(t, err)
	certificates, err := NewCertificates(CertificatesConfig{CertFile: certPath, KeyFile: keyPath}, proxytest.DiscardLog())
	expect.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	server := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }),
		certificates.TLS(), slog.New(slog.DiscardHandler))
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })

	caPEM, err := os.ReadFile(certPath)
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
}

func TestServerHasNoTimeLimitOnAnswers(t *testing.T) {
	server := New(http.NotFoundHandler(), nil, slog.New(slog.DiscardHandler))
	if server.WriteTimeout != 0 || server.ReadTimeout != 0 {
		t.Error("watches and uploads would be cut off")
	}
	if server.HTTP2.SendPingTimeout != 0 || server.HTTP2.WriteByteTimeout != 0 {
		t.Error("the streams of a client that is stopped for a while would be cut off")
	}
	if server.ReadHeaderTimeout == 0 || server.IdleTimeout == 0 || server.HTTP2.MaxConcurrentStreams == 0 {
		t.Error("an idle or greedy client would be kept for ever")
	}
}

func TestServerErrorLog(t *testing.T) {
	var records proxytest.Recorder
	log := serverErrorLog(slog.New(&records))
	log.Print("http: TLS handshake error from 127.0.0.1:1: EOF")
	log.Print("http: superfluous response.WriteHeader call")
	want := []string{"server message=http: superfluous response.WriteHeader call"}
	if diff := cmp.Diff(want, records.Above(slog.LevelDebug)); diff != "" {
		t.Errorf("above debug (-want +got):\n%s", diff)
	}
}

// startProxy serves handler as the command does: behind OnlyPaths, with the server's own limits.
func startProxy(t *testing.T, handler http.Handler, http2 bool) *httptest.Server {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	return proxytest.Serve(t, New(OnlyPaths(handler), nil, log), http2)
}
