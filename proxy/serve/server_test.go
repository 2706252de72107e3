package serve

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestBoundsOfHeaders: the main server and that of the CONNECT port accept a request with 1,000 header values. (From Go 1.27
// on, net/http by itself would accept only 500.) The main server refuses a header of more than 64 KiB. Over HTTP/2 it announces
// that bound, so Go's client does not send such a header.
func TestBoundsOfHeaders(t *testing.T) {
	const manyValues = 1000
	long := strings.Repeat("x", 72<<10) // more than 64 KiB
	const (
		accepted        = http.StatusNotFound  // the answer of the main server's handler
		acceptedConnect = http.StatusForbidden // the answer to a CONNECT to another host than the API server
	)
	serve := func(http2 bool) *httptest.Server {
		return proxytest.Serve(t, New(http.NotFoundHandler(), nil, proxytest.DiscardLog()), http2)
	}

	// HTTP/1.1.
	server := serve(proxytest.HTTP1)
	tunnels := NewTunnels(mustTargets(t, "https://"+upstreamName), nil)
	connect := proxytest.Serve(t, NewConnectServer(tunnels, nil, observetest.Unread(), proxytest.DiscardLog()), proxytest.HTTP1)
	many := strings.Repeat("X-Value: x\r\n", manyValues)
	for name, tt := range map[string]struct {
		to       *httptest.Server
		head     string
		wantCode int
	}{
		"many values": {to: server, head: "GET / HTTP/1.1\r\nHost: x\r\n" + many, wantCode: accepted},
		"a long header": {
			to: server, head: "GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + long + "\r\n",
			wantCode: http.StatusRequestHeaderFieldsTooLarge,
		},
		"many values of a CONNECT": {
			to: connect, head: "CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere:443\r\n" + many,
			wantCode: acceptedConnect,
		},
	} {
		if res, _, _ := proxytest.SendRaw(t, tt.to, tt.head+"\r\n"); res.StatusCode != tt.wantCode {
			t.Errorf("%s: got %s, want %d", name, res.Status, tt.wantCode)
		}
	}

	// HTTP/2.
	server = serve(proxytest.HTTP2)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	expect.NoError(t, err)
	r.Header["X-Value"] = slices.Repeat([]string{"x"}, manyValues)
	res := proxytest.Do(t, server.Client(), r)
	expect.Same(t, 2, res.ProtoMajor)
	expect.Same(t, accepted, res.StatusCode)
	r.Header["X-Value"] = []string{long}
	if res, err := server.Client().Do(r); err == nil || !strings.Contains(err.Error(), "larger than peer's advertised limit") {
		t.Errorf("a long header over HTTP/2: got %v and error %v, want an error of the client", res, err)
	}
}

// TestDrainCutsConnections: Shutdown closes a connection on which only half a request has come in. That request does not count
// as cut off, since it has reached no handler. The ends of watches are spread over a quarter of the timeout, but at most over
// five seconds.
func TestDrainCutsConnections(t *testing.T) {
	for name, tt := range map[string]struct {
		timeout    time.Duration
		wantSpread time.Duration // over which the watches end
		wantClean  bool
	}{
		// Shutdown closes the connection at the timeout.
		"a short timeout": {timeout: 4 * time.Second, wantSpread: time.Second, wantClean: false},
		// net/http closes the connection before the timeout.
		"a long timeout": {timeout: time.Hour, wantSpread: 5 * time.Second, wantClean: true},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			server := New(http.NotFoundHandler(), nil, proxytest.DiscardLog())
			drain := NewDrain(server, func(spread time.Duration) { expect.Same(t, tt.wantSpread, spread) })
			// Half a request comes in.
			conn, err := proxytest.ServeInPipes(t, server).Dial(t.Context(), "", "")
			expect.NoError(t, err)
			_, err = io.WriteString(conn, "GET /api HTTP/1.1\r\nHost: ")
			expect.NoError(t, err)
			// The server shuts down, and closes the connection without an answer.
			cut, clean := drain.Shutdown(tt.timeout)
			expect.Same(t, int64(0), cut)
			expect.Same(t, tt.wantClean, clean)
			if rest, err := io.ReadAll(conn); len(rest) > 0 {
				t.Errorf("the client read %q, %v, want nothing", rest, err)
			}
		})
	}
}

// TestConnectionsInUse: if the server has as many connections as it may have (here one), a new connection waits while a request
// runs on the old one. When that request is answered, the old connection is closed for the new one. This holds over HTTP/1.1
// and HTTP/2.
func TestConnectionsInUse(t *testing.T) {
	for _, http2 := range []bool{proxytest.HTTP1, proxytest.HTTP2} {
		// A server of one connection, whose handler waits for endRequest.
		requestStarts, endRequest := make(chan bool), make(chan bool)
		server := New(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			requestStarts <- true
			select {
			case <-endRequest:
			case <-r.Context().Done():
			}
		}), nil, proxytest.DiscardLog())
		testServer := httptest.NewUnstartedServer(nil)
		testServer.Config = server
		testServer.EnableHTTP2 = http2
		testServer.Listener = limits.NewConnections(1).Listen(testServer.Listener)
		testServer.StartTLS()
		t.Cleanup(testServer.Close)
		// startRequest sends a request on a new connection. The channel gets the error when the answer has come.
		startRequest := func() <-chan error {
			client := &http.Client{Transport: testServer.Client().Transport.(*http.Transport).Clone()}
			t.Cleanup(client.CloseIdleConnections)
			done := make(chan error, 1)
			go func() {
				res, err := client.Get(testServer.URL)
				if err == nil {
					err = res.Body.Close()
				}
				done <- err
			}()
			return done
		}
		// The first request runs. The second one waits for a connection.
		first := startRequest()
		<-requestStarts
		second := startRequest()
		select {
		case <-requestStarts:
			t.Errorf("HTTP/2 %t: the second connection was accepted while the first had a request", http2)
		case <-time.After(50 * time.Millisecond): // enough for a connection that is accepted
		}
		// The first request ends, so its connection is idle. Then the second one runs.
		endRequest <- true
		expect.NoError(t, <-first)
		<-requestStarts
		endRequest <- true
		expect.NoError(t, <-second)
	}
}

// TestRequestOnAClosedConnection: a request whose connection has just been closed for a new one is aborted, and not carried
// out.
func TestRequestOnAClosedConnection(t *testing.T) {
	listener := inmemory.NewListener()
	go func() { _, _ = listener.Dial(t.Context(), "", "") }()
	conn, err := limits.NewConnections(1).Listen(listener).Accept()
	expect.NoError(t, err)
	// While the connection is open, a request is carried out.
	carriedOut := 0
	handler := withOpenConnection(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { carriedOut++ }))
	r := httptest.NewRequestWithContext(connectionContext(t.Context(), conn), http.MethodPost, "/api", http.NoBody)
	handler.ServeHTTP(httptest.NewRecorder(), r)
	expect.Same(t, 1, carriedOut)

	// Afterwards it is aborted.
	expect.NoError(t, conn.Close())
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("on a closed connection the handler panics with %v, want %v", err, http.ErrAbortHandler)
		}
		expect.Same(t, 1, carriedOut)
	}()
	handler.ServeHTTP(httptest.NewRecorder(), r)
}
