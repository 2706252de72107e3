package hop

import (
	"io"
	"net"
	"slices"
	"sync"
)

// Balancer is a TCP balancer on loopback. Each new connection goes to the next backend, and is closed if that one cannot be
// reached.
type Balancer struct {
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex // guards the following fields
	backends []string
	next     int
	conns    map[net.Conn]struct{} // both sides of each connection
	closed   bool
}

// StartBalancer starts a balancer without backends.
func StartBalancer() (*Balancer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &Balancer{listener: l, conns: map[net.Conn]struct{}{}}
	b.running.Go(b.serve)
	return b, nil
}

// Address returns the host and port for clients.
func (b *Balancer) Address() string { return b.listener.Addr().String() }

// Add adds a backend by its host and port.
func (b *Balancer) Add(backend string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = append(b.backends, backend)
}

// Remove removes a backend. Its connections go on.
func (b *Balancer) Remove(backend string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = slices.DeleteFunc(b.backends, func(s string) bool { return s == backend })
}

// Reset resets a random connection, on one of its two sides, and closes the other side. It reports whether there was one.
func (b *Balancer) Reset() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn := range b.conns { // in random order
		reset(conn) // carry closes the other side
		return true
	}
	return false
}

// reset closes a connection with a RST, and drops unsent bytes.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// Close ends the balancer and all connections.
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

// serve accepts connections until Close.
func (b *Balancer) serve() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.running.Go(func() { b.carry(client) })
	}
}

// carry copies bytes between a client and a backend until both directions have ended.
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

// choose returns the next backend, or "", which cannot be dialled, if there are none.
func (b *Balancer) choose() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.backends) == 0 {
		return ""
	}
	b.next++
	return b.backends[b.next%len(b.backends)]
}

// remember adds a connection. It reports false, and adds none, if the balancer is closed.
func (b *Balancer) remember(conn net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.conns[conn] = struct{}{}
	return true
}

// forget closes and removes a connection.
func (b *Balancer) forget(conn net.Conn) {
	_ = conn.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, conn)
}

// copyHalf copies one direction. It passes an orderly end on. After an error it ends both directions.
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
