package serve

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// ports are the port for CONNECT, without TLS of its own, and the server in its tunnels, before one handler.
type ports struct {
	connect string // address
	drain   *Drain // of the server
	records *proxytest.Recorder
	ca      *x509.CertPool
}

const upstreamName = "api.example:6443"

// openPorts serves handler as the command does.
func openPorts(t *testing.T, handler http.Handler) *ports {
	t.Helper()
	d := &ports{records: &proxytest.Recorder{}}
	log := slog.New(d.records)
	targets := mustTargets(t, "https://"+upstreamName)
	pair := newPair(t, targets.Hosts()...)
	certificates := mustLoad(t, pair, log)
	var err error
	d.ca, err = cert.NewPool(pair.CertFile)
	expect.NoError(t, err)

	tunnels := NewTunnels(targets, certificates.TLS())
	server := New(OnlyPaths(handler), certificates.TLS(), log)
	d.drain = NewDrain(server, func(time.Duration) {})
	connect, listener := NewConnect(tunnels, nil, observetest.Unread(), log), proxytest.Listen(t)
	d.connect = listener.Addr().String()
	go func() { _ = server.Serve(tunnels) }()
	go func() { _ = connect.Serve(listener) }()
	t.Cleanup(func() {
		_ = connect.Close()
		_ = server.Close()
	})
	return d
}

// TestRefusedAtTheDoors: the port for CONNECT takes nothing but a CONNECT to the API server, and a tunnel
// nothing without TLS, and nothing for another server. Nothing is sent to where a request points. (TestTargets and
// TestParseTarget have more ways to name a host; TestAttacks has the main port, more, and HTTP/2.)
func TestRefusedAtTheDoors(t *testing.T) {
	nobody := proxytest.Listen(t) // connects to it
	target := nobody.Addr().String()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "https_proxy"} {
		t.Setenv(name, "http://"+target)
	}
	d := openPorts(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request came through")
	}))
	doors := map[string]func(t *testing.T) net.Conn{
		"connect": func(t *testing.T) net.Conn { return dial(t, d.connect) },
		"tunnel":  func(t *testing.T) net.Conn { return d.tls(d.openTunnel(t, "")) },
		"bare":    func(t *testing.T) net.Conn { return d.openTunnel(t, "") },
	}
	const (
		bad        = metav1.StatusReasonBadRequest
		forbidden  = metav1.StatusReasonForbidden
		notAllowed = metav1.StatusReasonMethodNotAllowed
		plain      = metav1.StatusReason("") // net/http's own answer, or goproxy's
	)
	for _, tt := range []struct {
		door, head string
		code       int
		reason     metav1.StatusReason
	}{
		{"connect", "CONNECT " + target + " HTTP/1.1\r\nHost: " + target, 403, forbidden},
		{"connect", "CONNECT " + target + " HTTP/1.1\r\nHost: " + upstreamName, 403, forbidden},
		{"connect", "CONNECT " + target + "@" + upstreamName + " HTTP/1.1\r\nHost: " + upstreamName, 403, forbidden},
		{"connect", "CONNECT user:password@" + upstreamName + " HTTP/1.1\r\nHost: " + upstreamName, 403, forbidden},
		{"connect", "CONNECT " + upstreamName + "#@" + target + " HTTP/1.1\r\nHost: x", 400, plain},
		{"connect", "CONNECT https://" + upstreamName + "/ HTTP/1.1\r\nHost: x", 0, plain},
		{"connect", "CONNECT //" + upstreamName + " HTTP/1.1\r\nHost: " + upstreamName, 403, forbidden},
		{"connect", "CONNECT " + upstreamName + " HTTP/1.1\r\nHost: a\r\nHost: b", 400, plain},
		{"connect", "CONNECT " + upstreamName + " HTTP/1.1\r\nHost: x\r\nContent-Length: 5", 400, bad},
		{"connect", "CONNECT " + upstreamName + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked", 400, bad},
		{"connect", "connect " + upstreamName + " HTTP/1.1\r\nHost: x", 400, plain},
		{"connect", "GET /api HTTP/1.1\r\nHost: " + upstreamName, 400, bad},
		{"connect", "GET https://" + upstreamName + "/api HTTP/1.1\r\nHost: " + upstreamName, 400, bad},
		{"connect", "GET http://" + target + "/ HTTP/1.1\r\nHost: " + target, 400, bad},
		{"connect", "OPTIONS * HTTP/1.1\r\nHost: x", 0, plain},
		{"connect", "PRI * HTTP/2.0", 0, plain},

		{"tunnel", "GET /api HTTP/1.1\r\nHost: " + upstreamName + "@evil.example", 400, plain},
		{"tunnel", "GET /api HTTP/1.1\r\nHost: " + upstreamName + "\r\nHost: evil.example", 400, plain},
		{"tunnel", "GET http://" + target + "/api HTTP/1.1\r\nHost: " + upstreamName, 400, bad},
		{"tunnel", "CONNECT " + target + " HTTP/1.1\r\nHost: " + target, 405, notAllowed},
		{"bare", "GET /api HTTP/1.1\r\nHost: " + upstreamName, 400, plain}, // no TLS
	} {
		t.Run(tt.door+"/"+tt.head, func(t *testing.T) {
			res := exchange(t, doors[tt.door](t), tt.head+"\r\nProxy-Authorization: Basic aHVudGVyMg==")
			switch {
			case tt.reason != plain:
				proxytest.AssertStatus(t, res, tt.code, tt.reason)
			case res.StatusCode < 400 || tt.code != 0 && res.StatusCode != tt.code:
				t.Errorf("%s, want %d", res.Status, tt.code)
			}
		})
	}
	for _, text := range d.records.Above(slog.LevelDebug - 1) {
		proxytest.AssertNotContains(t, text, "aHVudGVyMg")
		proxytest.AssertNotContains(t, text, "password")
	}
	_ = nobody.(*net.TCPListener).SetDeadline(time.Now().Add(100 * time.Millisecond))
	if conn, err := nobody.Accept(); err == nil {
		t.Errorf("a connection came from %v", conn.RemoteAddr())
	}
}

// dial opens a connection for a test that does not take long.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	expect.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn
}

// tls is TLS with the API server over a connection.
func (d *ports) tls(over net.Conn) net.Conn {
	return tls.Client(over, &tls.Config{RootCAs: d.ca, ServerName: "api.example", MinVersion: tls.VersionTLS12})
}

// openTunnel opens a tunnel, and sends early bytes with its CONNECT.
func (d *ports) openTunnel(t *testing.T, early string) net.Conn {
	t.Helper()
	conn := dial(t, d.connect)
	_, err := io.WriteString(conn, "CONNECT "+upstreamName+" HTTP/1.1\r\nHost: "+upstreamName+"\r\n\r\n"+early)
	expect.NoError(t, err)
	answer := make([]byte, len(tunnelOpened))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != tunnelOpened {
		t.Fatalf("the answer to CONNECT: %q, %v", answer, err)
	}
	return conn
}

// exchange sends the head of an HTTP/1.1 request, and reads the answer.
func exchange(t *testing.T, conn net.Conn, head string) *http.Response {
	t.Helper()
	_, err := io.WriteString(conn, head+"\r\n\r\n")
	expect.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodGet})
	expect.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// TestIdleTunnelEnds: a tunnel in which nobody begins TLS does not stay, nor does a connection on which the
// rest of something is to come, nor one whose client does not read the answer to its CONNECT, granted or not.
func TestIdleTunnelEnds(t *testing.T) {
	certificates := mustLoad(t, newPair(t), proxytest.DiscardLog())
	synctest.Test(t, func(t *testing.T) {
		tunnels := NewTunnels(mustTargets(t, "https://"+upstreamName), certificates.TLS())
		server := New(OnlyPaths(http.NotFoundHandler()), certificates.TLS(), proxytest.DiscardLog())
		go func() { _ = server.Serve(tunnels) }()
		defer func() { _ = server.Close() }()
		port := proxytest.ServeInPipes(t, NewConnect(tunnels, nil, observetest.Unread(), proxytest.DiscardLog()))
		const tunnel = "CONNECT " + upstreamName + " HTTP/1.1\r\nHost: x\r\n\r\n"
		for _, tt := range []struct {
			head  string
			reads bool // the client, at once
		}{
			{"", true},                    // nothing at all
			{proxytest.StuckUpload, true}, // what is refused, without its body
			{"CONNECT api.exam", true},    // half a CONNECT
			{tunnel, true},
			{tunnel + "\x16\x03", true}, // and half a record
			{tunnel, false},
			{"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", false},
		} {
			begun := time.Now()
			conn, err := port.Dial(t.Context(), "", "")
			expect.NoError(t, err)
			go func() { _, _ = io.WriteString(conn, tt.head) }()
			if !tt.reads {
				time.Sleep(connectTimeout)
				synctest.Wait()
			}
			got, err := io.ReadAll(conn)
			if err != nil && !errors.Is(err, io.ErrClosedPipe) || len(got) > 0 && !tt.reads {
				t.Errorf("%q: read %q, %v", tt.head, got, err)
			}
			if took := time.Since(begun); took == 0 || took > connectTimeout+readHeaderTimeout {
				t.Errorf("%q: the connection ended after %v", tt.head, took)
			}
			_ = conn.Close()
		}
	})
}

// earlyConn opens its connection with what is written first.
type earlyConn struct {
	net.Conn
	open func(early string) net.Conn
}

func (e *earlyConn) Write(p []byte) (int, error) {
	if e.Conn != nil {
		return e.Conn.Write(p)
	}
	e.Conn = e.open(string(p))
	return len(p), nil
}

// TestTunnels: a client may begin its TLS before it has read the answer to its CONNECT. At the end, a tunnel in
// which nothing is under way keeps nothing, and none begins any more: one that nobody takes is closed.
func TestTunnels(t *testing.T) {
	d := openPorts(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s%s by %s", r.Method, r.Host, r.RequestURI, kubehttp.ListenerOf(r.Context()))
	}))
	idle := d.tls(&earlyConn{open: func(early string) net.Conn { return d.openTunnel(t, early) }})
	res := exchange(t, idle, "GET /early HTTP/1.1\r\nHost: "+upstreamName)
	expect.Same(t, "GET "+upstreamName+"/early by tunnel", proxytest.ReadAll(t, res.Body))
	if cut, clean := d.drain.End(24 * time.Hour); cut != 0 || !clean {
		t.Errorf("%d requests were cut, clean: %t", cut, clean)
	}
	for name, conn := range map[string]net.Conn{"idle": idle, "that came too late": d.openTunnel(t, "")} {
		if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
			t.Errorf("in a tunnel %s: %q, %v", name, rest, err)
		}
	}
}
