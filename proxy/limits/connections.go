package limits

import (
	"container/list"
	"net"
	"sync"
	"sync/atomic"
)

// Connections bounds the connections that are open at a time. At the bound, the oldest one that has not sent a
// request yet is closed for a new one. If all have, new ones wait, as they do at kube-apiserver when it has no file
// descriptors left. It is safe for concurrent use.
type Connections struct {
	slots chan struct{} // nil: any number
	open  atomic.Int64

	mu     sync.Mutex
	silent list.List // of *connection: those that have not sent a request, oldest first
}

// NewConnections returns Connections with that bound; 0 is no bound.
func NewConnections(most int) *Connections {
	c := &Connections{}
	if most > 0 {
		c.slots = make(chan struct{}, most)
	}
	return c
}

// Open is the number of connections that are open.
func (c *Connections) Open() int64 { return c.open.Load() }

// Most is the number of connections that may be open; 0 is any number.
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
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if !l.takeSlot() {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	return l.connections.admit(conn), nil
}

// takeSlot takes a slot for a new connection, and returns false if the listener was closed before there was one.
func (l *listener) takeSlot() bool {
	c := l.connections
	for c.slots != nil {
		select {
		case c.slots <- struct{}{}:
			return true
		default:
		}
		if c.closeSilent() {
			continue // another listener may take its slot
		}
		select {
		case c.slots <- struct{}{}:
			return true
		case <-l.closed:
			return false
		}
	}
	return true
}

// admit counts a connection that has a slot.
func (c *Connections) admit(conn net.Conn) *connection {
	c.open.Add(1)
	admitted := &connection{Conn: conn, connections: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	admitted.silent = c.silent.PushBack(admitted)
	return admitted
}

// closeSilent closes the oldest connection that has not sent a request, and returns false if there is none.
func (c *Connections) closeSilent() bool {
	c.mu.Lock()
	oldest := c.silent.Front()
	c.mu.Unlock()
	if oldest == nil {
		return false
	}
	_ = oldest.Value.(*connection).Close() //nolint:forcetypeassert // it has nothing else
	return true
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
	connections *Connections
	silent      *list.Element // in connections.silent, until it speaks or is closed

	speaks, leaves sync.Once
}

// speak takes the connection out of those that have not sent a request.
func (c *connection) speak() {
	c.speaks.Do(func() {
		c.connections.mu.Lock()
		defer c.connections.mu.Unlock()
		c.connections.silent.Remove(c.silent)
	})
}

// Requested notes that a request has come on a connection, which may be of TLS or in a tunnel.
func Requested(conn net.Conn) {
	for {
		switch c := conn.(type) {
		case *connection:
			c.speak()
			return
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return
		}
	}
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	defer c.leaves.Do(c.connections.leave)
	c.speak()
	return c.Conn.Close()
}

// NetConn is the connection below, for those who need to know its kind.
func (c *connection) NetConn() net.Conn { return c.Conn }
