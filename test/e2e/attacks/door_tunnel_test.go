package attacks

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestTunnel makes sure of the rig: what goes through a tunnel is answered as what goes straight.
func TestTunnel(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	target := strings.TrimPrefix(cp.URL(), "https://")
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go relay(conn, target)
		}
	}()
	tunnel := newTunnel("tunnel", &url.URL{Scheme: "http", Host: listener.Addr().String()}, target, cp.CA())
	for _, protocol := range []string{http1, http2} {
		a := attack{target: podsOfA}
		_, want, err := a.send(t.Context(), direct, protocol, reader)
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := a.send(t.Context(), tunnel, protocol, reader)
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(want, got, false); d != "" || got.first().Status != http.StatusOK {
			t.Errorf("%s: status %d (-direct +tunnel):\n%s", protocol, got.first().Status, d)
		}
	}
}

// relay answers one CONNECT, to target and nowhere else.
func relay(conn net.Conn, target string) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	req, err := http.ReadRequest(in)
	if err != nil || req.Method != http.MethodConnect || req.Host != target {
		return
	}
	upstream, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = upstream.Close() }()
	if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() { _, _ = io.Copy(upstream, in) }()
	_, _ = io.Copy(conn, upstream)
}
