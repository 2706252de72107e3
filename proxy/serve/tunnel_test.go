package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// ports are both ports, as the command builds them, before one handler.
type ports struct {
	server, connect *http.Server
	drain           *Drain
	tunnels         *Tunnels
	records         *proxytest.Recorder
	ca              *x509.CertPool
	// Addresses.
	main, tunnel string
}

const upstreamName = "api.example:6443"

// openPorts serves handler at both ports; the port for CONNECT without TLS if plain.
func openPorts(t *testing.T, handler http.Handler, plain bool) *ports {
	t.Helper()
	d := &ports{records: &proxytest.Recorder{}, ca: x509.NewCertPool()}
	log := slog.New(d.records)
	targets := mustTargets(t, "https://"+upstreamName, "kubernetes.default.svc", "fd00::a")
	certPath, keyPath := newPair(t, targets.Hosts()...)
	certificates := mustLoad(t, CertificatesConfig{CertFile: certPath, KeyFile: keyPath}, log)
	ca, err := os.ReadFile(certPath)
	expect.NoError(t, err)
	d.ca.AppendCertsFromPEM(ca)

	d.tunnels = NewTunnels(targets, certificates.TLS())
	d.server = New(OnlyPaths(handler), certificates.TLS(), log)
	d.drain = NewDrain(d.server, func(time.Duration) {})
	d.connect = NewConnect(d.tunnels, certificates.ConnectTLS(), observetest.Unread(), log)
	mainListener, connectListener := proxytest.Listen(t), proxytest.Listen(t)
	d.main, d.tunnel = mainListener.Addr().String(), connectListener.Addr().String()
	go func() { _ = d.server.ServeTLS(mainListener, "", "") }()
	go func() { _ = d.server.Serve(d.tunnels) }()
	if plain {
		go func() { _ = d.connect.Serve(connectListener) }()
	} else {
		go func() { _ = d.connect.ServeTLS(connectListener, "", "") }()
	}
	t.Cleanup(func() {
		_ = d.connect.Close()
		_ = d.server.Close()
	})
	return d
}

// transport is of a client with the port for CONNECT as its proxy.
func (d *ports) transport(t *testing.T, scheme string, http2 bool) *http.Transport {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	transport := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: scheme, Host: d.tunnel}),
		TLSClientConfig: &tls.Config{RootCAs: d.ca, MinVersion: tls.VersionTLS12},
		Protocols:       protocols,
	}
	if http2 && scheme == "https" {
		protocols.SetHTTP1(true) // as client-go: both are offered to the proxy and inside
	}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// tell answers with what the handler sees of a request.
func tell(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintf(w, "%s %s %s %s by %s", r.Proto, r.Method, r.Host, r.RequestURI, kubehttp.ListenerOf(r.Context()))
}

func TestBothPorts(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		d := openPorts(t, http.HandlerFunc(tell), scheme == "http")
		for _, http2 := range []bool{false, true} {
			proto := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2]
			client := &http.Client{Transport: d.transport(t, scheme, http2)}
			for _, host := range []string{upstreamName, "kubernetes.default.svc", "[fd00::a]", "API.example:6443"} {
				res := proxytest.Get(t, client, "https://"+host+"/api?x=1")
				if got, want := proxytest.ReadAll(t, res.Body), proto+" GET "+host+" /api?x=1 by tunnel"; got != want {
					t.Errorf("by an %s proxy-url: %q, want %q", scheme, got, want)
				}
			}
			res := proxytest.Get(t, &http.Client{Transport: func() http.RoundTripper {
				direct := d.transport(t, scheme, http2)
				direct.Proxy = nil
				return direct
			}()}, "https://"+d.main+"/api")
			expect.Same(t, proto+" GET "+d.main+" /api by server", proxytest.ReadAll(t, res.Body))
		}
	}
}

// TestConnectElsewhere: no CONNECT but that to the API server opens a tunnel, and nothing else is
// an answer on its port.
func TestConnectElsewhere(t *testing.T) {
	target, stop := proxytest.StartTarget(t)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "https_proxy"} {
		t.Setenv(name, "http://"+target)
	}
	d := openPorts(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request came through")
	}), true)
	const forbidden, bad = metav1.StatusReasonForbidden, metav1.StatusReasonBadRequest
	for _, tt := range []struct {
		head   string
		code   int
		reason metav1.StatusReason // empty: net/http's own answer
	}{
		{"CONNECT " + target + " HTTP/1.1\r\nHost: " + target, 403, forbidden},
		{"CONNECT " + target + " HTTP/1.1\r\nHost: " + upstreamName, 403, forbidden},
		{"CONNECT api.example:443 HTTP/1.1\r\nHost: x", 403, forbidden},
		{"CONNECT " + upstreamName + "@" + target + " HTTP/1.1\r\nHost: " + upstreamName, 403, forbidden},
		{"CONNECT " + target + "@" + upstreamName + " HTTP/1.1\r\nHost: " + upstreamName, 403, forbidden},
		{"CONNECT user:password@" + upstreamName + " HTTP/1.1\r\nHost: " + upstreamName, 403, forbidden},
		{"CONNECT " + upstreamName + "/api HTTP/1.1\r\nHost: x", 403, forbidden},
		{"CONNECT " + upstreamName + "#@" + target + " HTTP/1.1\r\nHost: x", 400, ""},
		{"CONNECT https://" + upstreamName + "/ HTTP/1.1\r\nHost: x", 0, ""},
		{"CONNECT //" + upstreamName + " HTTP/1.1\r\nHost: " + upstreamName, 403, forbidden},
		{"CONNECT * HTTP/1.1\r\nHost: " + upstreamName, 403, forbidden},
		{"CONNECT " + upstreamName + " HTTP/1.1\r\nHost: a\r\nHost: b", 400, ""},
		{"CONNECT " + upstreamName + " HTTP/1.1\r\nHost: x\r\nContent-Length: 5", 400, bad},
		{"CONNECT " + upstreamName + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked", 400, bad},
		{"connect " + upstreamName + " HTTP/1.1\r\nHost: x", 400, ""},
		{"GET /api HTTP/1.1\r\nHost: " + upstreamName, 400, bad},
		{"GET https://" + upstreamName + "/api HTTP/1.1\r\nHost: " + upstreamName, 400, bad},
		{"GET http://" + target + "/ HTTP/1.1\r\nHost: " + target, 400, bad},
		{"OPTIONS * HTTP/1.1\r\nHost: x", 0, ""},
		{"PRI * HTTP/2.0", 0, ""},
	} {
		t.Run(tt.head, func(t *testing.T) {
			conn, err := net.Dial("tcp", d.tunnel)
			expect.NoError(t, err)
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
			if _, err := io.WriteString(conn, tt.head+"\r\nProxy-Authorization: Basic aHVudGVyMg==\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodGet})
			expect.NoError(t, err)
			defer func() { _ = res.Body.Close() }()
			switch {
			case tt.reason != "":
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
	expect.Same(t, int64(0), stop())
}

// connect opens a tunnel over a connection to the plain port and begins no TLS.
func (d *ports) dial(t *testing.T, target, early string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", d.tunnel)
	expect.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n"+early); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len(tunnelOpened))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != tunnelOpened {
		t.Fatalf("the answer to CONNECT: %q, %v", answer, err)
	}
	return conn
}

// inside is an HTTP/1.1 conversation inside a tunnel.
func (d *ports) inside(t *testing.T, conn net.Conn, request string) *http.Response {
	t.Helper()
	inner := tls.Client(conn, &tls.Config{RootCAs: d.ca, ServerName: "api.example", MinVersion: tls.VersionTLS12})
	if _, err := io.WriteString(inner, request+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(inner), &http.Request{Method: http.MethodGet})
	expect.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func TestInsideATunnel(t *testing.T) {
	target, stop := proxytest.StartTarget(t)
	d := openPorts(t, http.HandlerFunc(tell), true)
	for _, tt := range []struct {
		name, request string
		code          int
		reason        metav1.StatusReason
	}{
		{"the API server", "GET /api HTTP/1.1\r\nHost: " + upstreamName, 200, ""},
		{"another of its names", "GET /api HTTP/1.1\r\nHost: Kubernetes.default.svc", 200, ""},
		{"another host", "GET /api HTTP/1.1\r\nHost: evil.example", 421, metav1.StatusReasonBadRequest},
		{"another port", "GET /api HTTP/1.1\r\nHost: api.example:443", 421, metav1.StatusReasonBadRequest},
		{"no port, which is another one", "GET /api HTTP/1.1\r\nHost: api.example", 421, metav1.StatusReasonBadRequest},
		{"an empty host", "GET /api HTTP/1.1\r\nHost: ", 421, metav1.StatusReasonBadRequest},
		{"no host", "GET /api HTTP/1.0", 421, metav1.StatusReasonBadRequest},
		{"a trailing dot", "GET /api HTTP/1.1\r\nHost: api.example.:6443", 421, metav1.StatusReasonBadRequest},
		{"a user", "GET /api HTTP/1.1\r\nHost: " + upstreamName + "@evil.example", 400, ""},
		{"two hosts", "GET /api HTTP/1.1\r\nHost: " + upstreamName + "\r\nHost: evil.example", 400, ""},
		{"a whole URL", "GET https://" + upstreamName + "/api HTTP/1.1\r\nHost: " + upstreamName, 400, metav1.StatusReasonBadRequest},
		{"a whole URL elsewhere", "GET http://" + target + "/api HTTP/1.1\r\nHost: " + upstreamName, 400, metav1.StatusReasonBadRequest},
		{"another CONNECT", "CONNECT " + upstreamName + " HTTP/1.1\r\nHost: " + upstreamName, 405, metav1.StatusReasonMethodNotAllowed},
		{"another CONNECT elsewhere", "CONNECT " + target + " HTTP/1.1\r\nHost: " + upstreamName, 405, metav1.StatusReasonMethodNotAllowed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res := d.inside(t, d.dial(t, upstreamName, ""), tt.request)
			switch {
			case tt.reason != "":
				proxytest.AssertStatus(t, res, tt.code, tt.reason)
			case res.StatusCode != tt.code:
				t.Errorf("%s, want %d", res.Status, tt.code)
			}
		})
	}
	expect.Same(t, int64(0), stop())
}

// TestMisdirectedHTTP2: :authority is judged as Host is.
func TestMisdirectedHTTP2(t *testing.T) {
	d := openPorts(t, http.HandlerFunc(tell), false)
	client := &http.Client{Transport: d.transport(t, "https", true)}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+upstreamName+"/api", nil)
	expect.NoError(t, err)
	r.Host = "evil.example"
	res := proxytest.Do(t, client, r)
	if res.ProtoMajor != 2 {
		t.Errorf("the test spoke %s", res.Proto)
	}
	proxytest.AssertStatus(t, res, 421, metav1.StatusReasonBadRequest)
}

// TestEarlyBytes: a client may begin its TLS before it has read the answer to its CONNECT.
func TestEarlyBytes(t *testing.T) {
	d := openPorts(t, http.HandlerFunc(tell), true)
	for _, size := range []int{1, 5, 100, -1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			held := &holdBack{size: size, dial: func(early string) net.Conn { return d.dial(t, upstreamName, early) }}
			res := d.inside(t, held, "GET /early HTTP/1.1\r\nHost: "+upstreamName)
			expect.Same(t, "HTTP/1.1 GET "+upstreamName+" /early by tunnel", proxytest.ReadAll(t, res.Body))
		})
	}
}

// holdBack sends the first bytes of the first write with the CONNECT (all for -1), and the rest
// afterwards.
type holdBack struct {
	net.Conn
	size int
	dial func(early string) net.Conn
}

func (h *holdBack) Write(p []byte) (int, error) {
	if h.Conn != nil {
		return h.Conn.Write(p)
	}
	size := h.size
	if size < 0 {
		size = len(p)
	}
	h.Conn = h.dial(string(p[:size]))
	n, err := h.Conn.Write(p[size:])
	return size + n, err
}

// TestNoTLSInATunnel: what is no TLS ends the connection, however early it came.
func TestNoTLSInATunnel(t *testing.T) {
	d := openPorts(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request came through")
	}), true)
	for _, early := range []string{"", "GET /api HTTP/1.1\r\nHost: " + upstreamName + "\r\n\r\n"} {
		conn := d.dial(t, upstreamName, early)
		if early == "" {
			_, _ = io.WriteString(conn, "GET /api HTTP/1.1\r\nHost: "+upstreamName+"\r\n\r\n")
		}
		// net/http says so in plain text before it closes.
		if rest, _ := io.ReadAll(conn); !strings.HasPrefix(string(rest), "HTTP/1.0 400 Bad Request") && len(rest) > 0 {
			t.Errorf("the answer is %q", rest)
		}
	}
}

// TestIdleTunnelEnds: a tunnel in which nobody begins TLS does not stay.
func TestIdleTunnelEnds(t *testing.T) {
	certPath, keyPath := newPair(t)
	certificates := mustLoad(t, CertificatesConfig{CertFile: certPath, KeyFile: keyPath}, proxytest.DiscardLog())
	synctest.Test(t, func(t *testing.T) {
		tunnels := NewTunnels(mustTargets(t, "https://"+upstreamName), certificates.TLS())
		server := New(OnlyPaths(http.NotFoundHandler()), certificates.TLS(), proxytest.DiscardLog())
		go func() { _ = server.Serve(tunnels) }()
		defer func() { _ = server.Close() }()
		port := serveInPipes(t, NewConnect(tunnels, nil, observetest.Unread(), proxytest.DiscardLog()))
		for _, head := range []string{
			"",                 // nothing at all
			"CONNECT api.exam", // half a CONNECT
			"CONNECT " + upstreamName + " HTTP/1.1\r\nHost: x\r\n\r\n",         // a tunnel
			"CONNECT " + upstreamName + " HTTP/1.1\r\nHost: x\r\n\r\n\x16\x03", // and half a record
		} {
			begun := time.Now()
			conn, err := port.Dial(t.Context(), "", "")
			expect.NoError(t, err)
			go func() { _, _ = io.WriteString(conn, head) }()
			if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%q: %v", head, err)
			}
			if took := time.Since(begun); took == 0 || took > connectTimeout+readHeaderTimeout {
				t.Errorf("%q: the connection ended after %v", head, took)
			}
			_ = conn.Close()
		}
	})
}

// TestShutdownDrainsTunnels: what is under way in a tunnel may end, and no tunnel begins any more.
func TestShutdownDrainsTunnels(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	d := openPorts(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-end
		tell(w, r)
	}), false)
	client := &http.Client{Transport: d.transport(t, "https", true)}
	type outcome struct {
		body string
		err  error
	}
	result := make(chan outcome, 1)
	go func() {
		res, err := client.Get("https://" + upstreamName + "/slow")
		if err != nil {
			result <- outcome{err: err}
			return
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		result <- outcome{string(body), err}
	}()
	<-begun
	waiting := d.dialTLS(t)
	stopped := make(chan error, 1)
	go func() {
		_ = d.connect.Close()
		stopped <- d.server.Shutdown(context.Background())
	}()
	<-d.tunnels.closed
	if _, err := io.WriteString(waiting, "CONNECT "+upstreamName+" HTTP/1.1\r\nHost: x\r\n\r\n"); err == nil {
		if answer, _ := io.ReadAll(waiting); strings.Contains(strings.TrimPrefix(string(answer), tunnelOpened), "HTTP") {
			t.Errorf("a tunnel was opened after the end: %q", answer)
		}
	}
	close(end)
	expect.Same(t, outcome{body: "HTTP/2.0 GET " + upstreamName + " /slow by tunnel"}, <-result, cmp.AllowUnexported(outcome{}))
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func (d *ports) dialTLS(t *testing.T) net.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", d.tunnel, &tls.Config{RootCAs: d.ca, MinVersion: tls.VersionTLS12})
	expect.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestTunnelsEnd: a tunnel that nobody has accepted ends with the listener.
func TestTunnelsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tunnels := NewTunnels(Targets{}, nil)
		server, client := net.Pipe()
		go tunnels.open(nil, &tunnelConn{Conn: server, in: server}, nil)
		answer := make([]byte, len(tunnelOpened))
		_, err := io.ReadFull(client, answer)
		expect.NoError(t, err)
		synctest.Wait() // it waits to be accepted
		if err := errors.Join(tunnels.Close(), tunnels.Close()); err != nil {
			t.Error(err)
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the tunnel goes on: %v", err)
		}
		if _, err := tunnels.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: %v", err)
		}
	})
}

// TestNobodyIsHeldByAnAnswer to a CONNECT that its client does not read, granted or not.
func TestNobodyIsHeldByAnAnswer(t *testing.T) {
	for _, target := range []string{"a:1", upstreamName} {
		proxytest.Bubble(t, target, func(t *testing.T) {
			tunnels := NewTunnels(mustTargets(t, "https://"+upstreamName), nil)
			_, dial := proxytest.ServePipe(t, newConnectHandler(tunnels, proxytest.DiscardLog()), false)
			conn := dial()
			_, err := io.WriteString(conn, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
			expect.NoError(t, err)
			time.Sleep(connectTimeout)
			synctest.Wait()
			if got, err := io.ReadAll(conn); len(got) > 0 {
				t.Errorf("it was still to be had: %q, %v", got, err)
			}
		})
	}
}

// TestConnectPortWaitsForNoBody of what it has refused.
func TestConnectPortWaitsForNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tunnels := NewTunnels(mustTargets(t, "https://"+upstreamName), nil)
		port := serveInPipes(t, NewConnect(tunnels, nil, observetest.Unread(), proxytest.DiscardLog()))
		conn, err := port.Dial(t.Context(), "", "")
		expect.NoError(t, err)
		begun := time.Now()
		_, err = io.WriteString(conn, proxytest.StuckUpload)
		expect.NoError(t, err)
		_, err = io.ReadAll(conn)
		expect.NoError(t, err)
		if took := time.Since(begun); took > 2*connectTimeout {
			t.Errorf("the connection ended after %v", took)
		}
	})
}

// serveInPipes serves in a bubble until the test ends.
func serveInPipes(t *testing.T, server *http.Server) *inmemory.Listener {
	t.Helper()
	listener, done := inmemory.NewListener(), make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until it is closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return listener
}

// TestDrainOfTunnels: idle connections in tunnels keep nothing.
func TestDrainOfTunnels(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		d := openPorts(t, http.HandlerFunc(tell), false)
		client := &http.Client{Transport: d.transport(t, "https", http2)}
		proxytest.ReadAll(t, proxytest.Get(t, client, "https://"+upstreamName+"/api").Body)
		_ = d.connect.Shutdown(t.Context())
		if cut, clean := d.drain.End(24 * time.Hour); cut != 0 || !clean {
			t.Errorf("it ended with %d requests cut, clean: %t", cut, clean)
		}
		if conn, err := d.tunnels.Accept(); err == nil {
			t.Errorf("a tunnel is accepted: %v", conn)
		}
	}
}
