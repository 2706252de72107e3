package limits

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// TestConnections: at the bound, the oldest connection that has not sent a request is closed for a new one. If all have,
// the new one waits until another one is closed; closing the listener ends the wait.
func TestConnections(t *testing.T) {
	const patience = 10 * time.Second // ends a wait; no test passes because of it
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
	next := func() net.Conn {
		t.Helper()
		select {
		case conn := <-accepted:
			return conn
		case <-time.After(patience):
			t.Fatal("no connection is accepted")
			return nil
		}
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		expect.NoError(t, err)
		expect.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	dial()
	first := next()
	Requested(tls.Server(first, nil))
	silent := dial()
	next()
	dial()
	second := next()
	if n, err := silent.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("a connection without a request gets %d, %v", n, err)
	}
	Requested(second)
	dial()
	select {
	case <-accepted:
		t.Error("more connections than there may be")
	case <-time.After(10 * time.Millisecond): // it would have been accepted by then, most of the time
	}
	if bound.Open() != 2 || bound.Most() != 2 {
		t.Errorf("%d of %d are open", bound.Open(), bound.Most())
	}
	for range 2 { // only the first counts
		_ = first.Close()
	}
	third := next()
	Requested(third)
	dial()
	expect.NoError(t, l.Close())
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener ended with %v", err)
	}
	_, _ = second.Close(), third.Close()
	if bound.Open() != 0 || bound.silent.Len() != 0 {
		t.Errorf("%d are open", bound.Open())
	}
}
