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
// header of more than 64 KiB. Over HTTP/2 the server announces that bound, so Go's client does not send such a header.
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

// TestDrainCutsConnections: a connection on which a request is still coming in is closed at the timeout. The request does not
// count as cut, since it has reached no handler, but the end is not clean. If the timeout is long, net/http itself closes the
// connection before it, and the end is clean. The ends of watches are spread over a quarter of the timeout, but over at most
// five seconds.
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
		begun, end := make(chan bool), make(chan bool)
		server := New(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			begun <- true
			select {
			case <-end:
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
		<-begun
		second := startRequest()
		select {
		case <-begun:
			t.Errorf("HTTP/2 %t: the second connection was accepted while the first had a request", http2)
		case <-time.After(50 * time.Millisecond): // enough for a connection that is accepted
		}
		end <- true
		expect.NoError(t, <-first)
		<-begun // the second, since the first connection is idle
		end <- true
		expect.NoError(t, <-second)
	}
}

// TestRequestOnAClosedConnection: a request whose connection has just been closed for a new one is aborted, and not carried out.
func TestRequestOnAClosedConnection(t *testing.T) {
	listener := inmemory.NewListener()
	go func() { _, _ = listener.Dial(t.Context(), "", "") }()
	conn, err := limits.NewConnections(1).Listen(listener).Accept()
	expect.NoError(t, err)
	// request reports whether a request on conn is carried out, or aborted.
	request := func() (carriedOut, aborted bool) {
		defer func() {
			err, _ := recover().(error)
			aborted = errors.Is(err, http.ErrAbortHandler)
		}()
		r := httptest.NewRequestWithContext(connectionContext(t.Context(), conn), http.MethodPost, "/api", http.NoBody)
		handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { carriedOut = true })
		withOpenConnection(handler).ServeHTTP(httptest.NewRecorder(), r)
		return carriedOut, false
	}
	if carriedOut, aborted := request(); !carriedOut || aborted {
		t.Errorf("on an open connection: carried out %t, aborted %t, want true, false", carriedOut, aborted)
	}
	expect.NoError(t, conn.Close())
	if carriedOut, aborted := request(); carriedOut || !aborted {
		t.Errorf("on a closed connection: carried out %t, aborted %t, want false, true", carriedOut, aborted)
	}
}
