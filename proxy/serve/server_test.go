package serve

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestBoundsOfHeaders: both servers take more values than the 500 at which net/http stops from Go 1.27 on,
// and no header of more than 64 KiB. Over HTTP/2 the server says so: Go's client does not even send it.
func TestBoundsOfHeaders(t *testing.T) {
	long := strings.Repeat("x", 72<<10)
	serve := func(http2 bool) *httptest.Server {
		return proxytest.Serve(t, New(http.NotFoundHandler(), nil, proxytest.DiscardLog()), http2)
	}
	server := serve(false)
	connect := proxytest.Serve(t, NewConnect(NewTunnels(mustTargets(t, "https://"+upstreamName), nil), nil, observetest.Unread(), proxytest.DiscardLog()), false)
	many := strings.Repeat("X-Value: x\r\n", 1000)
	for _, tt := range []struct {
		to   *httptest.Server
		head string
		code int
	}{
		{server, "GET / HTTP/1.1\r\nHost: x\r\n" + many, http.StatusNotFound},
		{server, "GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + long + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
		{connect, "CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere:443\r\n" + many, http.StatusForbidden},
	} {
		if res, _, _ := proxytest.SendRaw(t, tt.to, tt.head+"\r\n"); res.StatusCode != tt.code {
			t.Errorf("%.100q: %s, want %d", tt.head, res.Status, tt.code)
		}
	}

	server = serve(true)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	expect.NoError(t, err)
	r.Header["X-Value"] = slices.Repeat([]string{"x"}, 1000)
	res := proxytest.Do(t, server.Client(), r)
	if res.StatusCode != http.StatusNotFound || res.ProtoMajor != 2 {
		t.Errorf("over %s: %s", res.Proto, res.Status)
	}
	r.Header["X-Value"] = []string{long}
	if res, err := server.Client().Do(r); err == nil || !strings.Contains(err.Error(), "larger than peer's advertised limit") {
		t.Errorf("a long header over HTTP/2: %v, %v", res, err)
	}
}

// TestServerHasNoTimeLimitOnAnswers: only who is idle or greedy has limits.
func TestServerHasNoTimeLimitOnAnswers(t *testing.T) {
	server := New(http.NotFoundHandler(), nil, proxytest.DiscardLog())
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

// TestServerErrorLog: what net/http says reaches the log, but for handshakes that clients broke off.
func TestServerErrorLog(t *testing.T) {
	var records proxytest.Recorder
	log := serverErrorLog(slog.New(&records))
	log.Print("http: TLS handshake error from 127.0.0.1:1: EOF")
	log.Print("http: superfluous response.WriteHeader call")
	want := []string{"server message=http: superfluous response.WriteHeader call"}
	expect.Same(t, want, records.Above(slog.LevelDebug))
}

// TestDrainCutsConnections: a request that is still coming in when the time is over is cut with its connection.
// No handler has seen it, so it is not counted as cut, but the end was not clean. If its rest has not come for
// long, it is not waited for, and the end is clean. The ends of watches are spread over a quarter of the time
// there is, over five seconds at most.
func TestDrainCutsConnections(t *testing.T) {
	for _, tt := range []struct {
		timeout, spread time.Duration
		clean           bool
	}{{4 * time.Second, time.Second, false}, {time.Hour, 5 * time.Second, true}} {
		synctest.Test(t, func(t *testing.T) {
			server := New(http.NotFoundHandler(), nil, proxytest.DiscardLog())
			drain := NewDrain(server, func(within time.Duration) { expect.Same(t, tt.spread, within) })
			conn, err := proxytest.ServeInPipes(t, server).Dial(t.Context(), "", "")
			expect.NoError(t, err)
			_, err = io.WriteString(conn, "GET /api HTTP/1.1\r\nHost: ")
			expect.NoError(t, err)
			cut, clean := drain.End(tt.timeout)
			if rest, err := io.ReadAll(conn); cut != 0 || clean != tt.clean || len(rest) > 0 {
				t.Errorf("it ended with %d requests cut, clean: %t; read %q, %v", cut, clean, rest, err)
			}
		})
	}
}

// TestCloseWhileDraining: while draining, each answer has its client give up the connection, but for one that
// takes the connection over.
func TestCloseWhileDraining(t *testing.T) {
	for _, tt := range []struct {
		draining      bool
		upgrade, want string
	}{{false, "", ""}, {true, "", "close"}, {true, "websocket", ""}} {
		r, w := httptest.NewRequest(http.MethodGet, "/api", http.NoBody), httptest.NewRecorder()
		if tt.upgrade != "" {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", tt.upgrade)
		}
		CloseWhileDraining(http.NotFoundHandler(), func() bool { return tt.draining }).ServeHTTP(w, r)
		if got := w.Header().Get("Connection"); got != tt.want {
			t.Errorf("draining %t, upgrade %q: Connection is %q, want %q", tt.draining, tt.upgrade, got, tt.want)
		}
	}
}

// TestConnectionsInUse: over each protocol, only a connection whose requests are answered is closed for a new one.
func TestConnectionsInUse(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		begun, end := make(chan bool), make(chan bool)
		server := New(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			begun <- true
			select {
			case <-end:
			case <-r.Context().Done():
			}
		}), nil, proxytest.DiscardLog())
		bound := limits.NewConnections(1)
		started := httptest.NewUnstartedServer(nil)
		started.Config, started.EnableHTTP2, started.Listener = server, http2, bound.Listen(started.Listener)
		started.StartTLS()
		t.Cleanup(started.Close)
		request := func() <-chan error {
			client := &http.Client{Transport: started.Client().Transport.(*http.Transport).Clone()}
			t.Cleanup(client.CloseIdleConnections)
			done := make(chan error, 1)
			go func() {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, started.URL, http.NoBody)
				if err == nil {
					var res *http.Response
					if res, err = client.Do(r); err == nil {
						err = res.Body.Close()
					}
				}
				done <- err
			}()
			return done
		}
		first := request()
		<-begun
		second := request()
		select {
		case <-begun:
			t.Errorf("HTTP/2 %t: there was no place for the second, and the first is not answered", http2)
		case <-time.After(50 * time.Millisecond): // most of the time it would have come by then
		}
		end <- true
		expect.NoError(t, <-first)
		<-begun // the first is idle, and makes room
		end <- true
		expect.NoError(t, <-second)
	}
}

// TestRequestOnAClosedConnection: a request that came when its connection was just closed is not carried out.
func TestRequestOnAClosedConnection(t *testing.T) {
	listener := inmemory.NewListener()
	go func() { _, _ = listener.Dial(t.Context(), "", "") }()
	conn, err := limits.NewConnections(1).Listen(listener).Accept()
	expect.NoError(t, err)
	for _, closed := range []bool{false, true} {
		carriedOut := false
		func() {
			defer func() {
				if cause, _ := recover().(error); errors.Is(cause, http.ErrAbortHandler) != closed || carriedOut == closed {
					t.Errorf("closed %t: carried out %t, %v", closed, carriedOut, cause)
				}
			}()
			r := httptest.NewRequestWithContext(withConnection(t.Context(), conn), http.MethodPost, "/api", http.NoBody)
			abortOnReplacedConnection(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { carriedOut = true })).ServeHTTP(httptest.NewRecorder(), r)
		}()
		expect.NoError(t, conn.Close())
	}
}
