package forward

import (
	"bufio"
	"fmt"
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

// upgradeRequest is a request for an upgrade, as kubectl sends it.
type upgradeRequest struct {
	protocol     string
	text         string
	subprotocols []string // that the client offers
}

var (
	websocketUpgrade = upgradeRequest{
		protocol: "websocket",
		text: "GET /exec?command=sh HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
	}
	spdyUpgrade = upgradeRequest{
		protocol: "SPDY/3.1",
		text: "POST /exec?command=sh HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n" +
			"X-Stream-Protocol-Version: v5.channel.k8s.io\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n",
		subprotocols: []string{"v5.channel.k8s.io", "v4.channel.k8s.io"},
	}
	upgradeRequests = []upgradeRequest{websocketUpgrade, spdyUpgrade}
)

// TestUpgrades: the client gets the upstream's answer to an upgrade. Afterwards, each side reads what the other sends. If one
// side ends the connection, the other side sees the end.
func TestUpgrades(t *testing.T) {
	upstreamEnded := make(chan error)
	// After the upgrade, the upstream sends "out" and reads "in". If it then reads "end", it ends the connection. The upstream
	// offers HTTP/2, which has no upgrades and must not be used.
	upstream := proxytest.StartUpstream(t, proxytest.HTTP2, proxytest.SwitchTo(t, func(rw *bufio.ReadWriter) {
		_, _ = rw.WriteString("out\n")
		_ = rw.Flush()
		if line, err := rw.ReadString('\n'); line != "in\n" {
			t.Errorf("the upstream read %q with error %v, want in", line, err)
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
	}), proxytest.HTTP1)
	for _, request := range upgradeRequests {
		for _, upstreamEnds := range []bool{false, true} {
			res, conn, reader := proxytest.SendRaw(t, front, request.text)
			expect.Same(t, http.Header{
				"Connection": {"Upgrade"}, "Upgrade": {request.protocol},
				"X-Seen":       {fmt.Sprint(request.subprotocols)}, // proxytest.SwitchTo sends X-Stream-Protocol-Version back
				"Cache-Status": {"listproxy; fwd=bypass"},
			}, res.Header)
			expect.Same(t, http.StatusSwitchingProtocols, res.StatusCode)
			if line, err := reader.ReadString('\n'); line != "out\n" {
				t.Fatalf("%s: the client read %q, %v", request.protocol, line, err)
			}
			_, _ = io.WriteString(conn, "in\n")
			if upstreamEnds {
				_, _ = io.WriteString(conn, "end\n")
				expect.Same(t, "", proxytest.ReadAll(t, reader))
				continue
			}
			_ = conn.Close()
			if err := <-upstreamEnded; err == nil {
				t.Errorf("%s: the client's end did not reach the upstream", request.protocol)
			}
		}
	}
	expect.Same(t, []string(nil), records.Above(slog.LevelDebug))
}

// TestRefusedUpgradeClosesTheConnection: a refusal in place of an upgrade reaches the client whole, and nothing
// follows it on the connection.
func TestRefusedUpgradeClosesTheConnection(t *testing.T) {
	upstream := proxytest.StartUpstream(t, proxytest.HTTP2, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "no")
	})
	front := startProxy(t, newForwarder(t, upstream.Config()), proxytest.HTTP1)
	for _, request := range upgradeRequests {
		res, _, reader := proxytest.SendRaw(t, front, request.text)
		expect.Same(t, http.StatusForbidden, res.StatusCode)
		expect.Same(t, "no", proxytest.ReadAll(t, res.Body))
		if !res.Close {
			t.Fatalf("%s: the answer does not close the connection", request.protocol)
		}
		if rest := proxytest.ReadAll(t, reader); rest != "" {
			t.Errorf("%s: read %q after the answer, want nothing", request.protocol, rest)
		}
	}
}

// TestUnaskedProtocolIsNotSwitchedTo: if the upstream switches to a protocol for which the client has not asked, the client
// gets a 503, and the connection to the upstream is closed.
func TestUnaskedProtocolIsNotSwitchedTo(t *testing.T) {
	ended := make(chan struct{}, 1) // gets a value when a connection to the upstream has ended
	switchProtocol := proxytest.SwitchTo(t, func(rw *bufio.ReadWriter) {
		_, _ = rw.ReadByte()
		ended <- struct{}{}
	})
	upstream := proxytest.StartUpstream(t, proxytest.HTTP1, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/unnamed" { // there, the upstream switches without naming a protocol
			r.Header.Set("Upgrade", "other")
		}
		switchProtocol(w, r)
	})
	forwarder := newForwarder(t, upstream.Config())
	for _, tt := range []struct {
		path  string
		asked http.Header
	}{
		{path: "/exec", asked: http.Header{}},
		{path: "/unnamed", asked: http.Header{}},
		{path: "/exec", asked: upgradeHeader("websocket")},
		{path: "/exec", asked: upgradeHeader("SPDY/3.1")},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tt.path, nil)
		r.Header = tt.asked
		forwarder.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s with %v: got %d, want 503", tt.path, tt.asked, w.Code)
		}
		<-ended
	}
}

// TestImpersonatedUpgrades: a request with listproxy's credentials is refused if it asks for an upgrade to a protocol that
// Kubernetes does not use. A request with the caller's own credentials is not refused.
func TestImpersonatedUpgrades(t *testing.T) {
	const notRefused = "" // in place of a reason
	for protocol, want := range map[string]string{
		"websocket": notRefused, "WebSocket": notRefused, "SPDY/3.1": notRefused,
		"h2c": observe.RefusedUpgrade, "websocket, h2c": observe.RefusedUpgrade,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/exec", nil)
		r.Header = upgradeHeader(protocol)
		if got, _ := whyRefused(r, proxytest.Jane(auth.NewAuthenticator(nil))); got != want {
			t.Errorf("%s, impersonated: refused with %q, want %q", protocol, got, want)
		}
		if got, _ := whyRefused(r, auth.Identity{}); got != notRefused {
			t.Errorf("%s, not impersonated: refused with %q", protocol, got)
		}
	}
}
