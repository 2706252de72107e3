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

// TestBoundsOfHeaders: both servers take 1,000 header values (from Go 1.27 on, net/http's own bound is 500), and refuse a
// header of more than 64 KiB. Over HTTP/2 the server announces that bound, so Go's client does not send such a header. A taken
// request gets the answer of the handler: 404 at the main server, and 403 for a CONNECT to another host.
func TestBoundsOfHeaders(t *testing.T) {
	const manyValues = 1000
	long := strings.Repeat("x", 72<<10) // more than 64 KiB
	serve := func(http2 bool) *httptest.Server {
		return proxytest.Serve(t, New(http.NotFoundHandler(), nil, proxytest.DiscardLog()), http2)
	}
	server := serve(proxytest.HTTP1)
	tunnels := NewTunnels(mustTargets(t, "https://"+upstreamName), nil)
	connect := proxytest.Serve(t, NewConnectServer(tunnels, nil, observetest.Unread(), proxytest.DiscardLog()), proxytest.HTTP1)
	many := strings.Repeat("X-Value: x\r\n", manyValues)
	for name, tt := range map[string]struct {
		to       *httptest.Server
		head     string
		wantCode int
	}{
		"many values": {to: server, head: "GET / HTTP/1.1\r\nHost: x\r\n" + many, wantCode: http.StatusNotFound},
		"a long header": {
			to: server, head: "GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + long + "\r\n",
			wantCode: http.StatusRequestHeaderFieldsTooLarge,
		},
		"many values of a CONNECT": {
			to: connect, head: "CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere:443\r\n" + many,
			wantCode: http.StatusForbidden,
		},
	} {
		if res, _, _ := proxytest.SendRaw(t, tt.to, tt.head+"\r\n"); res.StatusCode != tt.wantCode {
			t.Errorf("%s: got %s, want %d", name, res.Status, tt.wantCode)
		}
	}

	server = serve(proxytest.HTTP2)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	expect.NoError(t, err)
	r.Header["X-Value"] = slices.Repeat([]string{"x"}, manyValues)
	res := proxytest.Do(t, server.Client(), r)
	expect.Same(t, 2, res.ProtoMajor)
	expect.Same(t, http.StatusNotFound, res.StatusCode)
	r.Header["X-Value"] = []string{long}
	if res, err := server.Client().Do(r); err == nil || !strings.Contains(err.Error(), "larger than peer's advertised limit") {
		t.Errorf("a long header over HTTP/2: got %v and error %v, want an error of the client", res, err)
	}
}

// TestDrainCutsConnections: Shutdown closes a connection on which a request is still coming in, at the timeout or earlier:
//
//	timeout  the connection is closed by  clean, so all has ended by itself  the ends of watches are spread over
//	short    Shutdown, at the timeout     no                                 a quarter of the timeout
//	long     net/http, before the timeout yes                                five seconds, the most
//
// The request never counts as cut, since it has reached no handler.
func TestDrainCutsConnections(t *testing.T) {
	for name, tt := range map[string]struct {
		timeout, wantSpread time.Duration
		wantClean           bool
	}{
		"a short timeout": {timeout: 4 * time.Second, wantSpread: time.Second, wantClean: false},
		"a long timeout":  {timeout: time.Hour, wantSpread: 5 * time.Second, wantClean: true},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			server := New(http.NotFoundHandler(), nil, proxytest.DiscardLog())
			drain := NewDrain(server, func(spread time.Duration) { expect.Same(t, tt.wantSpread, spread) })
			conn, err := proxytest.ServeInPipes(t, server).Dial(t.Context(), "", "")
			expect.NoError(t, err)
			_, err = io.WriteString(conn, "GET /api HTTP/1.1\r\nHost: ")
			expect.NoError(t, err)
			cut, clean := drain.Shutdown(tt.timeout)
			expect.Same(t, int64(0), cut)
			expect.Same(t, tt.wantClean, clean)
			if rest, err := io.ReadAll(conn); len(rest) > 0 {
				t.Errorf("the client read %q, %v, want nothing", rest, err)
			}
		})
	}
}

// TestConnectionsInUse: at the bound of connections, a new connection can replace only a connection whose requests are
// answered, over HTTP/1.1 and HTTP/2.
func TestConnectionsInUse(t *testing.T) {
	for _, http2 := range []bool{proxytest.HTTP1, proxytest.HTTP2} {
		requestStarts, endRequest := make(chan bool), make(chan bool)
		server := New(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			requestStarts <- true
			select {
			case <-endRequest:
			case <-r.Context().Done():
			}
		}), nil, proxytest.DiscardLog())
		started := httptest.NewUnstartedServer(nil)
		started.Config = server
		started.EnableHTTP2 = http2
		started.Listener = limits.NewConnections(1).Listen(started.Listener)
		started.StartTLS()
		t.Cleanup(started.Close)
		// startRequest sends a request on a new connection. The channel gets the error when the answer has come.
		startRequest := func() <-chan error {
			client := &http.Client{Transport: started.Client().Transport.(*http.Transport).Clone()}
			t.Cleanup(client.CloseIdleConnections)
			done := make(chan error, 1)
			go func() {
				res, err := client.Get(started.URL)
				if err == nil {
					err = res.Body.Close()
				}
				done <- err
			}()
			return done
		}
		first := startRequest()
		<-requestStarts
		second := startRequest()
		select {
		case <-requestStarts:
			t.Errorf("HTTP/2 %t: the second connection was accepted while the first had a request", http2)
		case <-time.After(50 * time.Millisecond): // enough for a connection that is accepted
		}
		endRequest <- true
		expect.NoError(t, <-first)
		<-requestStarts // the second, since the first connection is idle
		endRequest <- true
		expect.NoError(t, <-second)
	}
}

// TestRequestOnAClosedConnection: a request whose connection has just been closed for a new one is aborted, and not carried out.
func TestRequestOnAClosedConnection(t *testing.T) {
	listener := inmemory.NewListener()
	go func() { _, _ = listener.Dial(t.Context(), "", "") }()
	conn, err := limits.NewConnections(1).Listen(listener).Accept()
	expect.NoError(t, err)
	carriedOut := 0
	handler := withOpenConnection(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { carriedOut++ }))
	r := httptest.NewRequestWithContext(connectionContext(t.Context(), conn), http.MethodPost, "/api", http.NoBody)
	handler.ServeHTTP(httptest.NewRecorder(), r)
	expect.Same(t, 1, carriedOut)

	expect.NoError(t, conn.Close())
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("on a closed connection the handler panics with %v, want %v", err, http.ErrAbortHandler)
		}
		expect.Same(t, 1, carriedOut)
	}()
	handler.ServeHTTP(httptest.NewRecorder(), r)
}
