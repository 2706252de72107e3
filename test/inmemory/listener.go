package inmemory

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// Listener accepts the connections that [Listener.Dial] opens, in memory.
type Listener struct {
	incoming chan net.Conn
	closed   chan struct{}
	close    sync.Once
}

// NewListener returns an open listener.
func NewListener() *Listener {
	return &Listener{incoming: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial opens a connection. It ignores network and address. After Close it returns ECONNREFUSED.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.incoming <- there:
		return here, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.incoming:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *Listener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }
