package forward

import (
	"bufio"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

var upgradeProtocols = map[string]string{
	"websocket": "GET /exec?command=sh HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
	"SPDY/3.1": "POST /exec?command=sh HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n" +
		"X-Stream-Protocol-Version: v5.channel.k8s.io\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n",
}

// TestUpgrades: what is asked for is agreed to, either side hears the other, and either may end the connection.
func TestUpgrades(t *testing.T) {
	upstreamEnded := make(chan error)
	// HTTP/2 is offered, and must not be used.
	upstream := proxytest.StartUpstream(t, true, proxytest.SwitchTo(t, func(rw *bufio.ReadWriter) {
		_, _ = rw.WriteString("out\n")
		_ = rw.Flush()
		if line, err := rw.ReadString('\n'); line != "in\n" {
			t.Errorf("the upstream read %q, %v", line, err)
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
			res, conn, reader := proxytest.SendRaw(t, front, request)
			seen := map[string]string{"websocket": "[]", "SPDY/3.1": "[v5.channel.k8s.io v4.channel.k8s.io]"}[protocol]
			want := http.Header{"Connection": {"Upgrade"}, "Upgrade": {protocol}, "X-Seen": {seen}, "Cache-Status": {"listproxy; fwd=bypass"}}
			expect.Same(t, want, res.Header)
			expect.Same(t, http.StatusSwitchingProtocols, res.StatusCode)
			if line, err := reader.ReadString('\n'); line != "out\n" {
				t.Fatalf("%s: the client read %q, %v", protocol, line, err)
			}
			_, _ = io.WriteString(conn, "in\n")
			if upstreamEnds {
				_, _ = io.WriteString(conn, "end\n")
				expect.Same(t, "", proxytest.ReadAll(t, reader))
				continue
			}
			_ = conn.Close()
			if err := <-upstreamEnded; err == nil {
				t.Errorf("%s: the client's end did not reach the upstream", protocol)
			}
		}
	}
	expect.Same(t, []string(nil), records.Above(slog.LevelDebug))
}

// TestRefusedUpgradeClosesTheConnection: a refusal in place of an upgrade reaches the client whole, and nothing
// follows it on the connection.
func TestRefusedUpgradeClosesTheConnection(t *testing.T) {
	upstream := proxytest.StartUpstream(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "no")
	})
	front := startProxy(t, newForwarder(t, upstream.Config()), false)
	for protocol, request := range upgradeProtocols {
		res, _, reader := proxytest.SendRaw(t, front, request)
		if body := proxytest.ReadAll(t, res.Body); res.StatusCode != http.StatusForbidden || body != "no" || !res.Close {
			t.Fatalf("%s: %s, %q, the connection ends: %t", protocol, res.Status, body, res.Close)
		}
		if rest := proxytest.ReadAll(t, reader); rest != "" {
			t.Errorf("%s: read %q behind the answer", protocol, rest)
		}
	}
}

// TestUnaskedProtocolIsNotSwitchedTo, and the connection to the upstream is not kept.
func TestUnaskedProtocolIsNotSwitchedTo(t *testing.T) {
	ended := make(chan struct{}, 1)
	agree := proxytest.SwitchTo(t, func(rw *bufio.ReadWriter) {
		_, _ = rw.ReadByte()
		ended <- struct{}{}
	})
	upstream := proxytest.StartUpstream(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/unnamed" {
			r.Header.Set("Upgrade", "other")
		}
		agree(w, r)
	})
	forwarder := newForwarder(t, upstream.Config())
	for path, asked := range map[string]http.Header{"/exec": {}, "/unnamed": {}, "/exec?": upgrade("websocket"), "/exec?stdin": upgrade("SPDY/3.1")} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Header = asked
		forwarder.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s, %v: status %d, want 503", path, asked, w.Code)
		}
		<-ended
	}
}

// TestImpersonatedUpgrades: a connection with the proxy's credentials is only upgraded to what Kubernetes speaks.
// (TestAttacks has what comes of it.)
func TestImpersonatedUpgrades(t *testing.T) {
	for protocol, known := range map[string]bool{
		"websocket": true, "WebSocket": true, "SPDY/3.1": true, "h2c": false, "websocket, h2c": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/exec", nil)
		r.Header = upgrade(protocol)
		for id, want := range map[*auth.Identity]bool{new(proxytest.Jane(auth.NewAuthenticator(nil))): !known, {}: false} {
			if reason, _ := whyRefused(r, *id); (reason == observe.RefusedUpgrade) != want {
				t.Errorf("%s, impersonated %t: refused with %q", protocol, id.VerifiedUser() != nil, reason)
			}
		}
	}
}
