package forward

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

var upgradeProtocols = map[string]string{
	"websocket": "GET /exec?command=sh HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
	"SPDY/3.1": "POST /exec?command=sh HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n" +
		"X-Stream-Protocol-Version: v5.channel.k8s.io\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n",
}

// TestUpgrades has either side speak only when it has heard the other, and end the connection.
func TestUpgrades(t *testing.T) {
	const rounds = 5
	upstreamEnded := make(chan error)
	// HTTP/2 is offered, and must not be used.
	upstream := proxytest.StartUpstream(t, true, proxytest.SwitchTo(t, func(rw *bufio.ReadWriter) {
		for i := range rounds {
			_, _ = fmt.Fprintf(rw, "out %d\n", i)
			_ = rw.Flush()
			if line, err := rw.ReadString('\n'); line != fmt.Sprintf("in %d\n", i) {
				t.Errorf("the upstream read %q, %v", line, err)
			}
		}
		if line, err := rw.ReadString('\n'); line != "end\n" {
			upstreamEnded <- err
		}
	}))
	var records proxytest.Recorder
	forwarder := newLoggedForwarder(t, upstream.Config(), slog.New(&records))
	front := startProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Status", "listproxy; fwd=bypass")
		forwarder.ServeHTTP(w, r)
	}), false)
	for protocol, request := range upgradeProtocols {
		for _, upstreamEnds := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the upstream ends it: %t", protocol, upstreamEnds), func(t *testing.T) {
				res, conn, reader := proxytest.SendRaw(t, front, request)
				want := http.Header{
					"Connection": {"Upgrade"}, "Upgrade": {protocol}, "X-Seen": {"[]"}, "Cache-Status": {"listproxy; fwd=bypass"},
				}
				if protocol == "SPDY/3.1" {
					want.Set("X-Seen", "[v5.channel.k8s.io v4.channel.k8s.io]")
				}
				expect.Same(t, want, res.Header)
				expect.Same(t, http.StatusSwitchingProtocols, res.StatusCode)
				for i := range rounds {
					if line, err := reader.ReadString('\n'); line != fmt.Sprintf("out %d\n", i) {
						t.Fatalf("the client read %q, %v", line, err)
					}
					_, _ = fmt.Fprintf(conn, "in %d\n", i)
				}
				if upstreamEnds {
					_, _ = io.WriteString(conn, "end\n")
					expect.Same(t, "", proxytest.ReadAll(t, reader))
					return
				}
				_ = conn.Close()
				if err := <-upstreamEnded; err == nil {
					t.Error("the client's end did not reach the upstream")
				}
			})
		}
	}
	expect.Same(t, []string(nil), records.Above(slog.LevelDebug))
}

func TestRefusedUpgradeClosesTheConnection(t *testing.T) {
	upstream := proxytest.StartUpstream(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "no")
	})
	front := startProxy(t, newForwarder(t, upstream.Config()), false)
	for protocol, request := range upgradeProtocols {
		t.Run(protocol, func(t *testing.T) {
			res, _, reader := proxytest.SendRaw(t, front, request)
			if body := proxytest.ReadAll(t, res.Body); res.StatusCode != http.StatusForbidden || body != "no" {
				t.Errorf("status %s, body %q", res.Status, body)
			}
			if !res.Close {
				t.Fatal("the answer does not say Connection: close")
			}
			if rest := proxytest.ReadAll(t, reader); rest != "" {
				t.Errorf("read %q behind the answer", rest)
			}
		})
	}
}

// TestUnaskedProtocolIsNotSwitchedTo also covers an upstream that switches
// without being asked to.
func TestUnaskedProtocolIsNotSwitchedTo(t *testing.T) {
	ended := make(chan struct{}, 1)
	upstream := proxytest.StartUpstream(t, false, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\n")
		if r.URL.Path != "/unnamed" {
			_, _ = io.WriteString(rw, "Connection: Upgrade\r\nUpgrade: other\r\n")
		}
		_, _ = io.WriteString(rw, "\r\n")
		_ = rw.Flush()
		_, _ = rw.ReadByte()
		ended <- struct{}{}
	})
	front := startProxy(t, newForwarder(t, upstream.Config()), false)
	requests := map[string]string{
		"unasked":             "GET /exec HTTP/1.1\r\nHost: x\r\n\r\n",
		"unasked and unnamed": "GET /unnamed HTTP/1.1\r\nHost: x\r\n\r\n",
	}
	maps.Copy(requests, upgradeProtocols)
	for name, request := range requests {
		t.Run(name, func(t *testing.T) {
			res, _, _ := proxytest.SendRaw(t, front, request)
			if res.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("status %s, want 503", res.Status)
			}
			<-ended // the connection to the upstream is not kept
		})
	}
}
