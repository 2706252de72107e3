package limits

import (
	"container/list"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Connections bounds the number of open connections. At the bound, a new connection replaces one that waits for a
// request. It is taken from the network with the most waiting connections, the new one counted in, and is the one that
// has waited longest there. So a client that only opens connections replaces its own. If all connections have a request,
// new ones wait, as they do at kube-apiserver when it has no file descriptors left. Connections is safe for concurrent
// use.
type Connections struct {
	limit int64
	open  atomic.Int64

	mu      sync.Mutex            // guards changes of open, too
	changed sync.Cond             // open has become smaller, waiting larger, or a listener was closed
	waiting map[string]*list.List // the connections that wait for a request, by network; a list is sorted by waitingSince
}

// answerEndDelay is the time after an answer over HTTP/2 for which its connection counts as in use: net/http reports the
// connection as idle before it has sent the end of the answer. net/http itself waits as long before it closes a
// connection after a GOAWAY.
const answerEndDelay = time.Second

// NewConnections returns Connections of which at most limit are open at a time.
func NewConnections(limit int) *Connections {
	c := &Connections{limit: int64(limit), waiting: map[string]*list.List{}}
	c.changed.L = &c.mu
	return c
}

// Open returns the number of open connections.
func (c *Connections) Open() int64 { return c.open.Load() }

// Limit returns the largest number of open connections.
func (c *Connections) Limit() int { return int(c.limit) }

// Listen returns a listener whose connections are bounded together with those of other listeners.
func (c *Connections) Listen(l net.Listener) net.Listener {
	return &listener{Listener: l, connections: c}
}

type listener struct {
	net.Listener
	connections *Connections
	closed      bool // guarded by connections.mu
}

// Accept implements [net.Listener]. At the bound it waits until there is room.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := l.connections
	incoming := &connection{Conn: conn, connections: c, network: NetworkOf(conn.RemoteAddr().String())}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.open.Load() >= c.limit {
		if l.closed {
			_ = conn.Close()
			return nil, net.ErrClosed
		}
		replaced := c.replaceable(incoming.network)
		if replaced == nil {
			c.changed.Wait()
			continue
		}
		replaced.giveUpPlace()
		go func() { _ = replaced.Conn.Close() }() // closing may block
	}
	c.open.Add(1)
	incoming.setWaiting(true)
	return incoming, nil
}

// replaceable returns the connection that a new one from network replaces, or nil if all connections have a request.
func (c *Connections) replaceable(network string) *connection {
	var found *connection
	highest := 0 // the number of found's network
	for name, waiting := range c.waiting {
		count := waiting.Len()
		if name == network {
			count++ // the new one
		}
		oldest := waiting.Front().Value.(*connection) //nolint:forcetypeassert // the lists have nothing else
		if count > highest || count == highest && oldest.waitingSince.Before(found.waitingSince) {
			highest, found = count, oldest
		}
	}
	return found
}

// Close implements [net.Listener].
func (l *listener) Close() error {
	l.connections.mu.Lock()
	defer l.connections.mu.Unlock()
	l.closed = true
	l.connections.changed.Broadcast()
	return l.Listener.Close()
}

// connection is a connection of a listener.
type connection struct {
	net.Conn
	connections *Connections
	network     string

	// These are guarded by connections.mu.
	element      *list.Element // in connections.waiting; nil if the connection has a request, or is closed
	waitingSince time.Time     // the time at which the connection began to wait for a request
	generation   int           // the number of changes of state, by which a timer knows that its state is over

	// closed changes under connections.mu.
	closed atomic.Bool
	// http2Request says that a request has come over HTTP/2 since the connection was last idle. It is set without
	// connections.mu, since that happens for each request.
	http2Request atomic.Bool
}

// setWaiting sets whether the connection waits for a request, from now on. connections.mu must be held.
func (c *connection) setWaiting(waits bool) {
	all := c.connections.waiting
	if c.element != nil {
		all[c.network].Remove(c.element)
		c.element = nil
		if all[c.network].Len() == 0 {
			delete(all, c.network)
		}
	}
	if waits && !c.closed.Load() {
		if all[c.network] == nil {
			all[c.network] = list.New()
		}
		c.waitingSince = time.Now()
		c.element = all[c.network].PushBack(c)
	}
	c.connections.changed.Broadcast()
}

// giveUpPlace takes the connection out of the number of open ones, once. connections.mu must be held.
func (c *connection) giveUpPlace() {
	if !c.closed.Swap(true) {
		c.connections.open.Add(-1)
		c.setWaiting(false)
	}
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	c.connections.mu.Lock()
	c.giveUpPlace()
	c.connections.mu.Unlock()
	return c.Conn.Close()
}

// NetConn returns the underlying connection, as that of [crypto/tls.Conn] does.
func (c *connection) NetConn() net.Conn { return c.Conn }

// unwrap returns the connection that Accept has returned, below a connection of TLS or in a tunnel. It returns nil if
// there is none.
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

// NoteState records whether a connection waits for a request. It is a server's [http.Server.ConnState].
func NoteState(conn net.Conn, state http.ConnState) {
	c := unwrap(conn)
	if c == nil {
		return
	}
	c.connections.mu.Lock()
	defer c.connections.mu.Unlock()
	switch state {
	case http.StateActive:
		c.generation++
		c.setWaiting(false)
	case http.StateIdle:
		c.generation++
		if c.http2Request.Swap(false) {
			c.waitLaterLocked()
		} else {
			c.setWaiting(true)
		}
	default: // a connection waits from its beginning, and Close ends that
	}
}

// waitLaterLocked makes the connection wait for a request after answerEndDelay, unless its state changes before.
func (c *connection) waitLaterLocked() {
	generation := c.generation
	time.AfterFunc(answerEndDelay, func() {
		c.connections.mu.Lock()
		defer c.connections.mu.Unlock()
		if c.generation == generation {
			c.setWaiting(true)
		}
	})
}

// NoteRequest records that a request has come on conn, a connection that a server got from [Connections.Listen]. It
// returns false if the connection has just been closed to make room. Then the request must not be carried out, since its
// client gets no answer.
func NoteRequest(conn net.Conn, r *http.Request) bool {
	c := unwrap(conn)
	if c == nil {
		return true
	}
	c.http2Request.Store(r.ProtoMajor == 2)
	return !c.closed.Load()
}

// NetworkOf returns the network of a TCP address: an IPv4 address, or the first half of an IPv6 address. It returns any
// other address unchanged.
func NetworkOf(remoteAddr string) string {
	peer, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return remoteAddr
	}
	const bits = 64 // a single host often has all addresses of a /64
	address := peer.Addr().Unmap().WithZone("")
	if address.Is6() {
		address = netip.PrefixFrom(address, bits).Masked().Addr()
	}
	return address.String()
}
