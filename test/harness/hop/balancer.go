package hop

import (
	"io"
	"net"
	"slices"
	"sync"
)

// Balancer is a plain TCP balancer on loopback: each new connection goes to the next of its
// backends, and is closed if that cannot be reached. It looks into nothing and tries nothing again.
type Balancer struct {
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	backends []string
	next     int
	conns    map[net.Conn]struct{}
	closed   bool
}

// StartBalancer starts a balancer that has no backends yet.
func StartBalancer() (*Balancer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &Balancer{listener: l, conns: map[net.Conn]struct{}{}}
	b.running.Go(b.serve)
	return b, nil
}

// Address is where clients go: host and port.
func (b *Balancer) Address() string { return b.listener.Addr().String() }

// Add adds a backend, host and port.
func (b *Balancer) Add(backend string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = append(b.backends, backend)
}

// Remove takes a backend out. Connections to it go on.
func (b *Balancer) Remove(backend string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = slices.DeleteFunc(b.backends, func(s string) bool { return s == backend })
}

// Reset resets one of the connections that pass, a random one, and closes the other half of it. It
// reports whether there was one.
func (b *Balancer) Reset() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn := range b.conns { // in no order
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // what was not sent is thrown away, and RST is sent
		}
		_ = conn.Close() // the other one is closed for it, by carry
		return true
	}
	return false
}

// Close ends the balancer and all that passes.
func (b *Balancer) Close() {
	b.mu.Lock()
	_ = b.listener.Close()
	b.closed = true
	for conn := range b.conns {
		_ = conn.Close()
	}
	b.mu.Unlock()
	b.running.Wait()
}

func (b *Balancer) serve() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.running.Go(func() { b.carry(client) })
	}
}

// carry takes the bytes of one connection to a backend and back, until both directions have ended.
func (b *Balancer) carry(client net.Conn) {
	defer b.forget(client)
	if !b.remember(client) {
		return
	}
	server, err := net.Dial("tcp", b.choose())
	if err != nil {
		return
	}
	defer b.forget(server)
	if !b.remember(server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { copyHalf(server, client) })
	both.Go(func() { copyHalf(client, server) })
	both.Wait()
}

// choose returns the next backend, or an address that cannot be dialled.
func (b *Balancer) choose() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.backends) == 0 {
		return ""
	}
	b.next++
	return b.backends[b.next%len(b.backends)]
}

func (b *Balancer) remember(conn net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns[conn] = struct{}{}
	return !b.closed
}

func (b *Balancer) forget(conn net.Conn) {
	_ = conn.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, conn)
}

// copyHalf hands on one direction. An orderly end is handed on as such; a reset, or one side that
// does not take what comes, ends both directions.
func copyHalf(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.Close()
		_ = from.Close()
		return
	}
	if half, ok := to.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
}
