package serve

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func TestProxyRequestsAreRefused(t *testing.T) {
	target, stop := proxytest.StartTarget(t)
	// Neither may the environment send listproxy anywhere.
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "https_proxy"} {
		t.Setenv(name, "http://"+target)
	}
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a proxy request came through") })
	server := startProxy(t, never, false)
	const bad, notAllowed = metav1.StatusReasonBadRequest, metav1.StatusReasonMethodNotAllowed
	for name, test := range map[string]struct {
		request string
		code    int
		reason  metav1.StatusReason
	}{
		"CONNECT":          {"CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n", 405, notAllowed},
		"CONNECT 1.0":      {"CONNECT " + target + " HTTP/1.0\r\n", 405, notAllowed},
		"CONNECT, a path":  {"CONNECT /api HTTP/1.1\r\nHost: x\r\n", 405, notAllowed},
		"whole URL":        {"GET http://" + target + "/x HTTP/1.1\r\nHost: " + target + "\r\n", 400, bad},
		"whole https URL":  {"GET https://" + target + "/x HTTP/1.1\r\nHost: x\r\n", 400, bad},
		"with a websocket": {"GET ws://" + target + "/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", 400, bad},
		"with a body":      {"POST http://" + target + "/x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n", 400, bad},
		"asterisk":         {"GET * HTTP/1.1\r\nHost: x\r\n", 400, bad},
	} {
		t.Run(name, func(t *testing.T) {
			res, _, _ := proxytest.SendRaw(t, server, test.request+"Proxy-Authorization: Basic aHVudGVyMg==\r\n\r\n")
			proxytest.AssertStatus(t, res, test.code, test.reason)
		})
	}

	server = startProxy(t, never, true)
	u, err := url.Parse(server.URL)
	expect.NoError(t, err)
	r := (&http.Request{Method: http.MethodConnect, URL: u, Host: target, Header: http.Header{}}).WithContext(t.Context())
	res := proxytest.Do(t, server.Client(), r)
	expect.Same(t, 2, res.ProtoMajor)
	proxytest.AssertStatus(t, res, 405, notAllowed)
	// No Go client puts a whole URL into :path, and a Go server accepts it.
	r = httptest.NewRequest(http.MethodGet, "http://"+target+"/x", nil)
	r.ProtoMajor, r.ProtoMinor, r.Proto = 2, 0, "HTTP/2.0"
	w := httptest.NewRecorder()
	OnlyPaths(never).ServeHTTP(w, r)
	proxytest.AssertStatus(t, w.Result(), 400, bad)
	expect.Same(t, int64(0), stop())
}

// TestCloseWhileDraining: while draining each connection is used once more, over both versions of
// HTTP.
func TestCloseWhileDraining(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			var draining atomic.Bool
			server := httptest.NewUnstartedServer(CloseWhileDraining(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.RemoteAddr)
			}), draining.Load))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			ask := func() string {
				resp, err := server.Client().Get(server.URL)
				expect.NoError(t, err)
				defer func() { _ = resp.Body.Close() }()
				body, err := io.ReadAll(resp.Body)
				expect.NoError(t, err)
				return string(body)
			}
			for range proxytest.KeepingTries {
				server.Client().CloseIdleConnections()
				draining.Store(false)
				first := ask()
				again := ask() == first
				draining.Store(true)
				used := map[string]bool{}
				for range 3 {
					conn := ask()
					if used[conn] {
						t.Fatal("a connection is used again")
					}
					used[conn] = true
				}
				if again && used[first] {
					return
				}
			}
			t.Error("no connection is used again, and once more")
		})
	}
}
