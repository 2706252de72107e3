package hop

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestReset: a connection that is reset ends with an error, whichever half was chosen, and a new
// one works.
func TestReset(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	defer func() { _ = server.Close() }()
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	b, err := StartBalancer()
	expect.NoError(t, err)
	defer b.Close()
	b.Add(server.Addr().String())
	if b.Reset() {
		t.Error("there was nothing to reset")
	}
	for range 8 {
		conn, err := net.Dial("tcp", b.Address())
		expect.NoError(t, err)
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if !b.Reset() {
			t.Error("there was a connection")
		}
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes after a reset", n)
		}
		_ = conn.Close()
		poll.Until(t, time.Minute, "the balancer has forgotten both halves", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.conns) == 0
		})
	}
}
