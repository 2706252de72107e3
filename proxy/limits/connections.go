package limits

import (
	"container/list"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Connections bounds the number of open connections. At the bound, a new connection replaces the one that has been idle for
// longest. If no connection is idle, Accept waits, as at kube-apiserver when it has no file descriptors left. Connections is
// safe for concurrent use.
type Connections struct {
	limit int64

	mu   sync.Mutex
	open int64
	// changed wakes Accept when a connection was closed or became idle, or when a listener was closed.
	changed sync.Cond
	// idle has the idle connections (*connection). It begins with the one that has been idle for longest.
	idle list.List
}

// NewConnections returns a Connections that allows at most limit open connections.
func NewConnections(limit int) *Connections {
	cs := &Connections{limit: int64(limit)}
	cs.changed.L = &cs.mu
	return cs
}

// Open returns the number of open connections.
func (cs *Connections) Open() int64 {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.open
}

// Limit returns the bound on open connections.
func (cs *Connections) Limit() int { return int(cs.limit) }

// Listen returns a listener whose connections are bounded together with those of other listeners.
func (cs *Connections) Listen(l net.Listener) net.Listener {
	return &listener{Listener: l, all: cs}
}

// listener is what [Connections.Listen] returns.
type listener struct {
	net.Listener
	all    *Connections
	closed bool // guarded by all.mu
}

// Accept implements [net.Listener]. At the bound it closes the connection that has been idle for longest. If none is idle, it
// waits until there is room.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	cs := l.all
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for cs.open >= cs.limit {
		if l.closed {
			_ = conn.Close()
			return nil, net.ErrClosed
		}
		longestIdle := cs.idle.Front()
		if longestIdle == nil {
			cs.changed.Wait()
			continue
		}
		replaced := longestIdle.Value.(*connection) //nolint:forcetypeassert // idle has nothing else
		replaced.setClosedLocked()
		go func() { _ = replaced.Conn.Close() }() // closing may block
	}
	cs.open++
	incoming := &connection{Conn: conn, all: cs}
	incoming.setIdleLocked() // until its first request, so that silent clients can be replaced
	return incoming, nil
}

// Close implements [net.Listener].
func (l *listener) Close() error {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.closed = true
	l.all.changed.Broadcast()
	return l.Listener.Close()
}

// connection is a connection that a listener has accepted. It is in one of these states:
//
//	state     the connection                               in all.idle   counted in all.open
//	idle      has no request                               yes           yes
//	in use    has requests, or answered one in the last    no            yes
//	          second (answerEndDelay)
//	closed    was closed by this side, or will be at once  no            no
type connection struct {
	net.Conn
	all *Connections

	// all.mu guards the fields of this group.

	// idleElement is the connection's element in all.idle, or nil if it is not there.
	idleElement *list.Element
	// stateChanges is the number of changes that NoteState has recorded. From it, the timer of setIdleLaterLocked knows whether
	// the state has changed since the timer was started.
	stateChanges int

	// closed is set just before Conn is closed. From then on, no request of the connection is carried out. It is atomic, so
	// that a request does not lock all.mu.
	closed atomic.Bool
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	c.all.mu.Lock()
	c.setClosedLocked()
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// NetConn returns the connection below, like the method of [crypto/tls.Conn].
func (c *connection) NetConn() net.Conn { return c.Conn }

// NoteState records whether a connection is idle. It is for [http.Server.ConnState].
func NoteState(conn net.Conn, state http.ConnState) {
	c := unwrap(conn)
	if c == nil {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	switch state {
	case http.StateActive:
		c.stateChanges++
		c.leaveIdleLocked()
	case http.StateIdle:
		c.stateChanges++
		c.setIdleLaterLocked()
	default: // Accept and Close handle the beginning and the end.
	}
}

// IsOpen reports whether conn is still open on this side. It returns false for a connection that was closed to make room: a
// request on it must not be carried out, since its client gets no answer.
func IsOpen(conn net.Conn) bool {
	c := unwrap(conn)
	return c == nil || !c.closed.Load()
}

// unwrap returns the connection from Accept that conn is or wraps, for TLS or in a tunnel. It returns nil if conn comes from
// another listener.
func unwrap(conn net.Conn) *connection {
	for {
		switch c := conn.(type) {
		case *connection:
			return c
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// setIdleLocked makes the connection idle from now on, unless it is closed.
func (c *connection) setIdleLocked() {
	c.leaveIdleLocked()
	if c.closed.Load() {
		return
	}
	c.idleElement = c.all.idle.PushBack(c)
	c.all.changed.Broadcast()
}

// answerEndDelay is the time for which a connection counts as in use after an answer, since net/http reports a connection over
// HTTP/2 as idle before it has sent the end of the answer. After a GOAWAY, net/http itself waits for one second, too.
const answerEndDelay = time.Second

// setIdleLaterLocked calls setIdleLocked after answerEndDelay, unless the connection's state changes earlier.
func (c *connection) setIdleLaterLocked() {
	stateChanges := c.stateChanges
	time.AfterFunc(answerEndDelay, func() {
		c.all.mu.Lock()
		defer c.all.mu.Unlock()
		if c.stateChanges == stateChanges {
			c.setIdleLocked()
		}
	})
}

// leaveIdleLocked takes the connection out of all.idle, if it is there.
func (c *connection) leaveIdleLocked() {
	if c.idleElement != nil {
		c.all.idle.Remove(c.idleElement)
		c.idleElement = nil
	}
}

// setClosedLocked marks the connection as closed, which leaves room for another one. The caller then closes Conn. A second call
// does nothing.
func (c *connection) setClosedLocked() {
	if !c.closed.Swap(true) {
		c.leaveIdleLocked()
		c.all.open--
		c.all.changed.Broadcast()
	}
}
