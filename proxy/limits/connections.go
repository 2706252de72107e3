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

// Connections bounds the number of open connections. At the bound, a new one replaces one that waits for a request: the
// one that has waited longest, of the network that has most of them, with the new one. So a client that only opens
// connections replaces its own. If all connections have a request, new ones wait, as they do at kube-apiserver when it
// has no file descriptors left. It is safe for concurrent use.
type Connections struct {
	most int64 // 0: no bound
	open atomic.Int64

	mu      sync.Mutex            // guards changes of open, too
	changed sync.Cond             // open has become smaller, waiting larger, or a listener was closed
	waiting map[string]*list.List // of *connection, by network, sorted by since
}

// answerEndDelay is the time after an answer over HTTP/2 for which its connection counts as in use. net/http reports
// the connection as idle before it has sent the end of the answer. It gives clients the same time after a GOAWAY.
const answerEndDelay = time.Second

// NewConnections returns Connections with a bound. 0 is no bound.
func NewConnections(most int) *Connections {
	c := &Connections{most: int64(most), waiting: map[string]*list.List{}}
	c.changed.L = &c.mu
	return c
}

// Open returns the number of open connections.
func (c *Connections) Open() int64 { return c.open.Load() }

// Most returns the bound, or 0 if there is none.
func (c *Connections) Most() int { return int(c.most) }

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
	admitted := &connection{Conn: conn, connections: c, network: NetworkOf(conn.RemoteAddr().String())}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.most > 0 && c.open.Load() >= c.most {
		if l.closed {
			_ = conn.Close()
			return nil, net.ErrClosed
		}
		if replaced := c.replaceable(admitted.network); replaced != nil {
			replaced.giveUpPlace()
			go func() { _ = replaced.Conn.Close() }() // may take a while
		} else {
			c.changed.Wait()
		}
	}
	c.open.Add(1)
	admitted.setWaiting(true)
	return admitted, nil
}

// replaceable returns the connection that a new one from network replaces, or nil if all have a request.
func (c *Connections) replaceable(network string) (found *connection) {
	most := 0
	for name, waiting := range c.waiting {
		count := waiting.Len()
		if name == network {
			count++ // the new one
		}
		oldest := waiting.Front().Value.(*connection) //nolint:forcetypeassert // there is nothing else
		if count > most || count == most && oldest.since.Before(found.since) {
			most, found = count, oldest
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
	element *list.Element // in connections.waiting; nil if it has a request, or is closed
	since   time.Time     // the time at which it began to wait for a request
	changes int           // counts its changes of state

	// closed changes under connections.mu. http2 is set without the lock, by NoteRequest for each request, and reset
	// when the connection becomes idle.
	closed atomic.Bool
	http2  atomic.Bool
}

// setWaiting notes whether the connection waits for a request. connections.mu must be held.
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
		c.since = time.Now()
		c.element = all[c.network].PushBack(c)
	}
	c.connections.changed.Broadcast()
}

// giveUpPlace makes room for another connection. connections.mu must be held.
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

// underlying returns the connection of a listener below conn, which may be of TLS or in a tunnel, or nil if there is
// none.
func underlying(conn net.Conn) *connection {
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

// NoteState notes whether a connection waits for a request. It is a server's [http.Server.ConnState].
func NoteState(conn net.Conn, state http.ConnState) {
	c := underlying(conn)
	if c == nil || state != http.StateActive && state != http.StateIdle {
		return
	}
	c.connections.mu.Lock()
	defer c.connections.mu.Unlock()
	c.changes++
	if state == http.StateActive || !c.http2.Load() {
		c.setWaiting(state == http.StateIdle)
		return
	}
	c.http2.Store(false)
	changes := c.changes
	time.AfterFunc(answerEndDelay, func() {
		c.connections.mu.Lock()
		defer c.connections.mu.Unlock()
		if c.changes == changes {
			c.setWaiting(true)
		}
	})
}

// NoteRequest notes that a request has come on a connection. It returns false if the connection was just then closed
// for a new one. The request must not be carried out then, since its client learns nothing of it.
func NoteRequest(conn net.Conn, r *http.Request) bool {
	c := underlying(conn)
	if c == nil {
		return true
	}
	c.http2.Store(r.ProtoMajor == 2)
	return !c.closed.Load()
}

// NetworkOf returns the network of a TCP address: an IPv4 address, or the first half of an IPv6 address. It returns any
// other address unchanged.
func NetworkOf(remoteAddr string) string {
	peer, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return remoteAddr
	}
	const bits = 64 // one host can have all IPv6 addresses beyond these
	address := peer.Addr().Unmap().WithZone("")
	if address.Is6() {
		address = netip.PrefixFrom(address, bits).Masked().Addr()
	}
	return address.String()
}
