package limits

import (
	"errors"
	"net"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestConnections: at the bound, a new connection waits until another one is closed; closing the
// listener ends the wait.
func TestConnections(t *testing.T) {
	bound := NewConnections(2)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	l := bound.Listen(plain)
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- conn
		}
	}()
	for range 3 {
		conn, err := net.Dial("tcp", l.Addr().String())
		expect.NoError(t, err)
		defer func() { _ = conn.Close() }()
	}
	first, second := <-accepted, <-accepted
	select {
	case <-accepted:
		t.Error("more connections than there may be")
	default:
	}
	if bound.Open() != 2 || bound.Most() != 2 {
		t.Errorf("%d of %d are open", bound.Open(), bound.Most())
	}
	for range 2 { // only the first counts
		_ = first.Close()
	}
	third := <-accepted
	expect.NoError(t, l.Close())
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener ended with %v", err)
	}
	_, _ = second.Close(), third.Close()
	if bound.Open() != 0 {
		t.Errorf("%d are open", bound.Open())
	}
}
