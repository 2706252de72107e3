package hop

import (
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
)

// Balancer is a plain TCP balancer on loopback: each new connection goes to the next of its
// backends, and is closed if that cannot be reached. It looks into nothing and tries nothing again.
type Balancer struct {
	address string
	running sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	kept     int // a socket that keeps the port while nobody listens; 0: none
	backends []string
	next     int
	conns    map[net.Conn]struct{}
	closed   bool
}

// StartBalancer starts a balancer that has no backends yet.
func StartBalancer() (*Balancer, error) {
	b := &Balancer{address: "127.0.0.1:0", conns: map[net.Conn]struct{}{}}
	if err := b.Listen(); err != nil {
		return nil, err
	}
	b.address = b.listener.Addr().String()
	return b, nil
}

// Address is where clients go: host and port.
func (b *Balancer) Address() string { return b.address }

// Refuse closes the port: new connections are refused, until Listen opens it again. Nobody else
// gets it.
func (b *Balancer) Refuse() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, err := net.ResolveTCPAddr("tcp", b.address)
	if err != nil {
		return err
	}
	_ = b.listener.Close()
	kept, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	b.kept = kept
	if err := syscall.SetsockoptInt(kept, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return err
	}
	return syscall.Bind(kept, &syscall.SockaddrInet4{Port: at.Port, Addr: [4]byte{127, 0, 0, 1}})
}

// release lets the port go that Refuse has kept.
func (b *Balancer) release() {
	if b.kept != 0 {
		_ = syscall.Close(b.kept)
		b.kept = 0
	}
}

// Listen opens the port again after Refuse.
func (b *Balancer) Listen() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release()
	l, err := net.Listen("tcp", b.address)
	if err != nil {
		return err
	}
	b.listener = l
	b.running.Go(func() { b.serve(l) })
	return nil
}

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
	b.release()
	b.closed = true
	for conn := range b.conns {
		_ = conn.Close()
	}
	b.mu.Unlock()
	b.running.Wait()
}

func (b *Balancer) serve(l net.Listener) {
	for {
		client, err := l.Accept()
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
