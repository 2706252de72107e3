package serve

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
	expect.Same(t, int64(1), came.Load())
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
	expect.Same(t, want, records.Above(slog.LevelDebug))
}

// startProxy serves handler as the command does: behind OnlyPaths, with the server's own limits.
func startProxy(t *testing.T, handler http.Handler, http2 bool) *httptest.Server {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	return proxytest.Serve(t, New(OnlyPaths(handler), nil, log), http2)
}

// TestWatchSpread: the ends of watches are spread over a quarter of the time there is, over five
// seconds at most.
func TestWatchSpread(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{4 * time.Second: time.Second, time.Hour: 5 * time.Second} {
		var got time.Duration
		drain := NewDrain(New(http.NotFoundHandler(), nil, proxytest.DiscardLog()), func(within time.Duration) { got = within })
		drain.End(timeout)
		expect.Same(t, want, got)
	}
}

// TestDrainCutsConnections: where no handler runs, a request that is still coming in is cut, too.
// No request was; but the end was not clean.
func TestDrainCutsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := New(http.NotFoundHandler(), nil, proxytest.DiscardLog())
		drain := NewDrain(server, func(time.Duration) {})
		conn, err := serveInPipes(t, server).Dial(t.Context(), "", "")
		expect.NoError(t, err)
		_, err = io.WriteString(conn, "GET /api HTTP/1.1\r\nHost: ")
		expect.NoError(t, err)
		cut, clean := drain.End(2 * drain.LastFlush)
		if rest, err := io.ReadAll(conn); cut != 0 || clean || len(rest) > 0 {
			t.Errorf("it ended with %d requests cut, clean: %t; read %q, %v", cut, clean, rest, err)
		}
	})
}
