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

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// ports has the port for CONNECT, and the server of its tunnels. In these tests the port has no TLS of its own.
type ports struct {
	connect string              // the address of the port for CONNECT
	drain   *Drain              // of the server of the tunnels
	records *proxytest.Recorder // the log
	ca      *x509.CertPool      // trusts the certificate in tunnels
}

// upstreamName is the host and port of the upstream, to which tunnels lead by name.
const upstreamName = "api.example:6443"

// openPorts serves handler in tunnels, as the listproxy command does.
func openPorts(t *testing.T, handler http.Handler) *ports {
	t.Helper()
	p := &ports{records: &proxytest.Recorder{}}
	log := slog.New(p.records)
	targets := mustTargets(t, "https://"+upstreamName)
	pair := newPair(t, targets.Hosts()...)
	certificates := mustLoad(t, pair, log)
	var err error
	p.ca, err = cert.NewPool(pair.CertFile)
	expect.NoError(t, err)

	tunnels := NewTunnels(targets, certificates.TLS())
	server := New(OnlyPaths(handler), certificates.TLS(), log)
	p.drain = NewDrain(server, func(time.Duration) {})
	connect := NewConnectServer(tunnels, nil, observetest.Unread(), log)
	listener := proxytest.Listen(t)
	p.connect = listener.Addr().String()
	go func() { _ = server.Serve(tunnels) }()
	go func() { _ = connect.Serve(listener) }()
	t.Cleanup(func() {
		_ = connect.Close()
		_ = server.Close()
	})
	return p
}

// TestRefusedRequests: the port for CONNECT accepts only a CONNECT to the API server, and a tunnel only HTTP over TLS. Nothing
// is sent to the host that a request names. (TestTargets has more spellings of a host; TestAttacks has more requests, the main
// port and HTTP/2.)
func TestRefusedRequests(t *testing.T) {
	otherServer := proxytest.Listen(t) // must get no connection
	other := otherServer.Addr().String()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "https_proxy"} {
		t.Setenv(name, "http://"+other)
	}
	p := openPorts(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request came through")
	}))
	const (
		badRequest = metav1.StatusReasonBadRequest
		forbidden  = metav1.StatusReasonForbidden
		notAllowed = metav1.StatusReasonMethodNotAllowed
		noStatus   = metav1.StatusReason("") // the answer is net/http's own, or goproxy's
		anyError   = 0                       // any status from 400 on
	)
	const toUpstream = " HTTP/1.1\r\nHost: " + upstreamName
	connectTo := map[string]func(t *testing.T) net.Conn{ // opens the connection on which a request is sent
		"port":               func(t *testing.T) net.Conn { return dial(t, p.connect) },
		"tunnel":             func(t *testing.T) net.Conn { return p.startTLS(p.openTunnel(t, noEarlyBytes)) },
		"tunnel without TLS": func(t *testing.T) net.Conn { return p.openTunnel(t, noEarlyBytes) },
	}
	for _, tt := range []struct {
		to         string // a key of connectTo
		head       string
		wantCode   int
		wantReason metav1.StatusReason
	}{
		// At the port: CONNECT to another host, or to one that can be read in two ways.
		{to: "port", head: "CONNECT " + other + toUpstream, wantCode: 403, wantReason: forbidden},
		{to: "port", head: "CONNECT " + other + "@" + upstreamName + toUpstream, wantCode: 403, wantReason: forbidden},
		{to: "port", head: "CONNECT user:password@" + upstreamName + toUpstream, wantCode: 403, wantReason: forbidden},
		{to: "port", head: "CONNECT " + upstreamName + "#@" + other + toUpstream, wantCode: 400, wantReason: noStatus},
		{to: "port", head: "CONNECT //" + upstreamName + toUpstream, wantCode: 403, wantReason: forbidden},
		{to: "port", head: "CONNECT https://" + upstreamName + "/" + toUpstream, wantCode: anyError, wantReason: noStatus},
		// At the port: CONNECT with two Hosts, with a body, in lower case.
		{to: "port", head: "CONNECT " + upstreamName + toUpstream + "\r\nHost: b", wantCode: 400, wantReason: noStatus},
		{to: "port", head: "CONNECT " + upstreamName + toUpstream + "\r\nContent-Length: 5", wantCode: 400, wantReason: badRequest},
		{to: "port", head: "CONNECT " + upstreamName + toUpstream + "\r\nTransfer-Encoding: chunked", wantCode: 400, wantReason: badRequest},
		{to: "port", head: "connect " + upstreamName + toUpstream, wantCode: 400, wantReason: noStatus},
		// At the port: other methods.
		{to: "port", head: "GET /api" + toUpstream, wantCode: 400, wantReason: badRequest},
		{to: "port", head: "GET http://" + other + "/" + toUpstream, wantCode: 400, wantReason: badRequest},
		{to: "port", head: "OPTIONS *" + toUpstream, wantCode: anyError, wantReason: noStatus},
		{to: "port", head: "PRI * HTTP/2.0", wantCode: anyError, wantReason: noStatus},
		// In a tunnel.
		{to: "tunnel", head: "GET /api" + toUpstream + "@evil.example", wantCode: 400, wantReason: noStatus},
		{to: "tunnel", head: "GET /api" + toUpstream + "\r\nHost: evil.example", wantCode: 400, wantReason: noStatus},
		{to: "tunnel", head: "GET http://" + other + "/api" + toUpstream, wantCode: 400, wantReason: badRequest},
		{to: "tunnel", head: "CONNECT " + other + toUpstream, wantCode: 405, wantReason: notAllowed},
		{to: "tunnel without TLS", head: "GET /api" + toUpstream, wantCode: 400, wantReason: noStatus},
	} {
		t.Run(tt.to+"/"+tt.head, func(t *testing.T) {
			conn := connectTo[tt.to](t)
			res := exchange(t, conn, tt.head+"\r\nProxy-Authorization: Basic aHVudGVyMg==")
			switch {
			case tt.wantReason != noStatus:
				proxytest.AssertStatus(t, res, tt.wantCode, tt.wantReason)
			case tt.wantCode != anyError:
				expect.Same(t, tt.wantCode, res.StatusCode)
			case res.StatusCode < 400:
				t.Errorf("the answer is %s, want an error", res.Status)
			}
		})
	}
	// The log has no credentials.
	for _, text := range p.records.Above(belowAllLevels) {
		proxytest.AssertNotContains(t, text, "aHVudGVyMg")
		proxytest.AssertNotContains(t, text, "password")
	}
	// The other server got no connection.
	_ = otherServer.(*net.TCPListener).SetDeadline(time.Now().Add(100 * time.Millisecond))
	if conn, err := otherServer.Accept(); err == nil {
		t.Errorf("a connection came from %v", conn.RemoteAddr())
	}
}

// dial opens a connection with a deadline of 30 seconds.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	expect.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn
}

// startTLS returns a TLS client over a connection, which expects the API server's name.
func (p *ports) startTLS(over net.Conn) net.Conn {
	return tls.Client(over, &tls.Config{RootCAs: p.ca, ServerName: "api.example", MinVersion: tls.VersionTLS12})
}

// noEarlyBytes is the argument of openTunnel for a client that sends nothing before it has the answer to its CONNECT.
const noEarlyBytes = ""

// openTunnel opens a tunnel, and sends early bytes with its CONNECT.
func (p *ports) openTunnel(t *testing.T, early string) net.Conn {
	t.Helper()
	conn := dial(t, p.connect)
	_, err := io.WriteString(conn, "CONNECT "+upstreamName+" HTTP/1.1\r\nHost: "+upstreamName+"\r\n\r\n"+early)
	expect.NoError(t, err)
	answer := make([]byte, len(tunnelGranted))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != tunnelGranted {
		t.Fatalf("the answer to CONNECT is %q with error %v, want %q", answer, err, tunnelGranted)
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

// TestIdleTunnelEnds: a tunnel is closed if its client does not begin TLS. The same holds for a connection whose request does
// not come whole, or whose client does not read the answer to its CONNECT. All this takes at most 42 s: connectTimeout and
// readHeaderTimeout.
func TestIdleTunnelEnds(t *testing.T) {
	certificates := mustLoad(t, newPair(t), proxytest.DiscardLog())
	synctest.Test(t, func(t *testing.T) {
		tunnels := NewTunnels(mustTargets(t, "https://"+upstreamName), certificates.TLS())
		server := New(OnlyPaths(http.NotFoundHandler()), certificates.TLS(), proxytest.DiscardLog())
		go func() { _ = server.Serve(tunnels) }()
		defer func() { _ = server.Close() }()
		port := proxytest.ServeInPipes(t, NewConnectServer(tunnels, nil, observetest.Unread(), proxytest.DiscardLog()))
		const tunnel = "CONNECT " + upstreamName + " HTTP/1.1\r\nHost: x\r\n\r\n"
		for _, tt := range []struct {
			name  string
			head  string // what the client sends
			reads bool   // the client reads the answer at once, not after connectTimeout
		}{
			{name: "nothing", head: "", reads: true},
			{name: "a refused request without its body", head: proxytest.StuckUpload, reads: true},
			{name: "half a CONNECT", head: "CONNECT api.exam", reads: true},
			{name: "a CONNECT without TLS", head: tunnel, reads: true},
			{name: "a CONNECT and half a TLS record", head: tunnel + "\x16\x03", reads: true},
			{name: "a CONNECT whose answer is not read", head: tunnel, reads: false},
			{name: "a refused CONNECT whose answer is not read", head: "CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", reads: false},
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
			if err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%s: got error %v, want the end of the connection", tt.name, err)
			}
			if len(got) > 0 && !tt.reads {
				t.Errorf("%s: read %q after the end of the connection", tt.name, got)
			}
			const most = connectTimeout + readHeaderTimeout
			if took := time.Since(begun); took == 0 || took > most {
				t.Errorf("%s: the connection ended after %v, want at most %v, and not at once", tt.name, took, most)
			}
			_ = conn.Close()
		}
	})
}

// earlyConn opens a tunnel at the first Write, and sends the bytes of this Write with the CONNECT.
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

// TestTunnels: three rules hold for tunnels.
//
//   - A client may begin its TLS before it has read the answer to its CONNECT.
//   - The local address of a request in a tunnel is that of the port for CONNECT: the access log has its port.
//   - At shutdown, an idle tunnel is closed at once, and so is a tunnel that is opened afterwards.
func TestTunnels(t *testing.T) {
	p := openPorts(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s%s at %s", r.Method, r.Host, r.RequestURI, r.Context().Value(http.LocalAddrContextKey))
	}))
	// A request in a tunnel, whose TLS began with the CONNECT.
	idle := p.startTLS(&earlyConn{open: func(early string) net.Conn { return p.openTunnel(t, early) }})
	res := exchange(t, idle, "GET /early HTTP/1.1\r\nHost: "+upstreamName)
	expect.Same(t, "GET "+upstreamName+"/early at "+p.connect, proxytest.ReadAll(t, res.Body))

	// The server shuts down, and does not wait for the idle tunnel.
	cut, clean := p.drain.Shutdown(24 * time.Hour) // longer than a test may last
	expect.Same(t, int64(0), cut)
	expect.Same(t, true, clean)
	for name, conn := range map[string]net.Conn{"an idle tunnel": idle, "a tunnel after the end": p.openTunnel(t, noEarlyBytes)} {
		if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
			t.Errorf("%s: read %q, %v, want its end", name, rest, err)
		}
	}
}
