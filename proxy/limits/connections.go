package limits

import (
	"net"
	"sync"
	"sync/atomic"
)

// Connections bounds the connections that are open at a time. At the bound, new ones wait to be
// accepted, as they do at kube-apiserver when it has no file descriptors left. It is safe for
// concurrent use.
type Connections struct {
	slots chan struct{} // nil: any number
	open  atomic.Int64
}

// NewConnections returns Connections with that bound; 0 is no bound.
func NewConnections(most int) *Connections {
	c := &Connections{}
	if most > 0 {
		c.slots = make(chan struct{}, most)
	}
	return c
}

// Open is how many connections are open.
func (c *Connections) Open() int64 { return c.open.Load() }

// Most is how many connections may be open; 0 is any number.
func (c *Connections) Most() int { return cap(c.slots) }

// Listen returns l with its connections bounded, together with those of other listeners.
func (c *Connections) Listen(l net.Listener) net.Listener {
	return &listener{Listener: l, connections: c, closed: make(chan struct{})}
}

type listener struct {
	net.Listener
	connections *Connections
	closed      chan struct{}
	close       sync.Once
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	c := l.connections
	if c.slots != nil {
		select {
		case c.slots <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
	conn, err := l.Listener.Accept()
	c.open.Add(1)
	if err != nil {
		c.leave()
		return nil, err
	}
	return &connection{Conn: conn, leave: sync.OnceFunc(c.leave)}, nil
}

// Close implements [net.Listener].
func (l *listener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func (c *Connections) leave() {
	c.open.Add(-1)
	if c.slots != nil {
		<-c.slots
	}
}

type connection struct {
	net.Conn
	leave func()
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// NetConn is the connection below, for those who need to know its kind.
func (c *connection) NetConn() net.Conn { return c.Conn }
