package upstream

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// endpointTraffic records what happens on the connections to an endpoint. It does not count the
// connections of checks: their handshakes do not show that requests are answered. It is safe for
// concurrent use, and a Read takes no lock.
type endpointTraffic struct {
	began time.Time
	// last is when something was read last, in nanoseconds since began; 0: never.
	last atomic.Int64
	// open is how many connections there are.
	open atomic.Int64
}

func newEndpointTraffic() *endpointTraffic { return &endpointTraffic{began: time.Now()} }

// heardSince says whether something was read at the given time or later.
func (t *endpointTraffic) heardSince(at time.Time) bool {
	last := t.last.Load()
	return last > 0 && last >= int64(at.Sub(t.began))
}

// count returns conn wrapped: its reads are recorded, and it counts as open until it is closed.
func (t *endpointTraffic) count(conn net.Conn) net.Conn {
	t.open.Add(1)
	return &endpointConn{Conn: conn, traffic: t, ended: sync.OnceFunc(func() { t.open.Add(-1) })}
}

// endpointConn is a connection to an endpoint.
type endpointConn struct {
	net.Conn
	traffic *endpointTraffic
	ended   func()
}

// Read implements [net.Conn].
func (c *endpointConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.traffic.last.Store(max(1, int64(time.Since(c.traffic.began))))
	}
	return n, err
}

// Close implements [net.Conn].
func (c *endpointConn) Close() error {
	c.ended()
	return c.Conn.Close()
}
