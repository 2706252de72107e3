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

// lastFrames is the time after an answer over HTTP/2 for which its connection counts as in use: the server reports it
// as idle before it has sent the answer's end. The server gives clients as long after a GOAWAY.
const lastFrames = time.Second

// Connections bounds the connections that are open at a time. At the bound, a new one replaces one that waits for a
// request: of the network that then has most of these, the one that has waited longest. So a client that only opens
// connections replaces its own. If all have a request, new ones wait, as they do at kube-apiserver when it has no file
// descriptors left. It is safe for concurrent use.
type Connections struct {
	most int64 // 0: any number
	open atomic.Int64

	mu      sync.Mutex            // also of changes of open
	changed sync.Cond             // open has become smaller, waiting larger, or a listener was closed
	waiting map[string]*list.List // of *connection, by network: those that have waited longest first
}

// NewConnections returns Connections with that bound; 0 is no bound.
func NewConnections(most int) *Connections {
	c := &Connections{most: int64(most), waiting: map[string]*list.List{}}
	c.changed.L = &c.mu
	return c
}

// Open is the number of connections that are open.
func (c *Connections) Open() int64 { return c.open.Load() }

// Most is the number of connections that may be open; 0 is any number.
func (c *Connections) Most() int { return int(c.most) }

// Listen returns l with its connections bounded, together with those of other listeners.
func (c *Connections) Listen(l net.Listener) net.Listener {
	return &listener{Listener: l, connections: c}
}

type listener struct {
	net.Listener
	connections *Connections
	closed      bool // guarded by connections.mu
}

// Accept implements [net.Listener]. At the bound it waits until there is room, or the listener is closed.
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
			replaced.retire()
			go func() { _ = replaced.Conn.Close() }() // it may take a while
		} else {
			c.changed.Wait()
		}
	}
	c.open.Add(1)
	admitted.setWaiting(true)
	return admitted, nil
}

// replaceable returns the connection that a new one of a network replaces, or nil if all have a request.
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

type connection struct {
	net.Conn
	connections *Connections
	network     string

	// These are guarded by connections.mu.
	element *list.Element // in connections.waiting; nil: it is in use, or closed
	since   time.Time     // the beginning of its wait
	changes int           // of its state

	// These change under connections.mu, except that NoteRequest, which each request calls, takes no lock: it sets http2.
	closed atomic.Bool
	http2  atomic.Bool // since it was last idle, a request has come over HTTP/2
}

// setWaiting notes whether the connection waits for a request. Its caller holds connections.mu.
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

// retire gives up the connection's place. Its caller holds connections.mu.
func (c *connection) retire() {
	if !c.closed.Swap(true) {
		c.connections.open.Add(-1)
		c.setWaiting(false)
	}
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	c.connections.mu.Lock()
	c.retire()
	c.connections.mu.Unlock()
	return c.Conn.Close()
}

// NetConn is the connection below, for those who need to know its kind.
func (c *connection) NetConn() net.Conn { return c.Conn }

// admitted returns the connection of a listener that conn, which may be of TLS or in a tunnel, runs over; nil: none.
func admitted(conn net.Conn) *connection {
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

// NoteState notes which connections wait for a request. It is a server's [http.Server.ConnState].
func NoteState(conn net.Conn, state http.ConnState) {
	c := admitted(conn)
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
	time.AfterFunc(lastFrames, func() {
		c.connections.mu.Lock()
		defer c.connections.mu.Unlock()
		if c.changes == changes {
			c.setWaiting(true)
		}
	})
}

// NoteRequest notes that a request has come on a connection, and returns false if it was closed for a new one just
// then. The request must not be carried out, since nobody is told.
func NoteRequest(conn net.Conn, r *http.Request) bool {
	c := admitted(conn)
	if c == nil {
		return true
	}
	c.http2.Store(r.ProtoMajor == 2)
	return !c.closed.Load()
}

// NetworkOf returns the network that an address of TCP is in; any other address stays as it is.
func NetworkOf(remoteAddr string) string {
	peer, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return remoteAddr
	}
	const bits = 64 // what one IPv6 host can have all of
	address := peer.Addr().Unmap().WithZone("")
	if address.Is6() {
		address = netip.PrefixFrom(address, bits).Masked().Addr()
	}
	return address.String()
}
