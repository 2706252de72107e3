package inflight

import (
	"container/list"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/google/btree"

	"github.com/listproxy/listproxy/telemetry"
)

// Connections bounds how many connections one or several ports have at a time, so that nobody can
// take all of them.
//
// It does not give each address a fixed part: behind a load balancer, or a node that translates
// addresses, all clients have the same address, which must be able to have all connections; and two
// attackers have two addresses. Instead, the network with the fewest connections comes first
// (max-min fairness). If there is no room, a new connection replaces one of the network that has
// the most, if that has more than the new connection's own network; else one of its own network.
// The connection that has been without a request for longest is closed.
//
// A request of a caller whom the upstream knows protects its connection: it is not closed. Requests
// of other callers do not; otherwise made-up tokens could. One caller protects at most half of all
// connections, and all callers together fifteen sixteenths; otherwise one or two of them could keep
// all, with one watch on each. When so many are protected, a caller protects another one in place of
// the newest of the caller who protects the most, if that protects at least two more. So a new
// connection comes in, and when its caller is known, it is protected as well.
//
// If no connection may be closed, the new one is closed. It does not wait, since it would delay
// those behind it, for which there may be room.
//
// A Connections is safe for concurrent use.
type Connections struct {
	most  int // 0: any number
	heads *Limiter[Network]
	log   *slog.Logger
	// seldom limits the log lines that callers can cause.
	seldom telemetry.Seldom

	mu    sync.Mutex
	open  int
	peers map[Network]*peer
	// kept has the connections that callers protect, each with one of those who have a request on it.
	kept *holdings[*boundConn]
	// giving has the peers with a connection that may be closed; the peer with the most connections is
	// the last.
	giving *btree.BTreeG[*peer]
	ended  map[ConnectionEnd]uint64
}

// ConnectionEnd is why listproxy closed a connection.
type ConnectionEnd string

const (
	// endedRoom: it was without a request for longest, and a new one needed the place.
	endedRoom ConnectionEnd = "room"
	// endedFull: it was new, and there was nothing to close in its place.
	endedFull ConnectionEnd = "full"
	// endedUnfinished: too many bytes of unfinished requests have come on all connections together
	// ([headBudget]).
	endedUnfinished ConnectionEnd = "unfinished"
)

// ConnectionEnds returns all of them.
func ConnectionEnds() []ConnectionEnd {
	return []ConnectionEnd{endedRoom, endedFull, endedUnfinished}
}

// unkeptPart is the part of all connections that nobody protects. It is large enough for new ones to
// stay until their callers are known.
const unkeptPart = 16

// peer is a network with connections.
type peer struct {
	network Network
	held    int
	// free has the connections that no caller protects. The one that has been unprotected for longest
	// is the first.
	free list.List
}

// NewConnections returns a Connections for at most so many at a time, 0 for any number.
func NewConnections(most int, log *slog.Logger) (*Connections, error) {
	heads, err := NewLimiter[Network](LimiterConfig{Capacity: headBudget, PerCaller: mostOfOne(headBudget)})
	if most < 0 || err != nil {
		return nil, fmt.Errorf("the bound on connections, %d, must not be negative", most)
	}
	return &Connections{
		most: most, heads: heads, log: log, peers: map[Network]*peer{}, kept: newHoldings[*boundConn](),
		giving: btree.NewG(inNeedDegree, holdsLess), ended: map[ConnectionEnd]uint64{},
	}, nil
}

// holdsLess orders peers.
func holdsLess(a, b *peer) bool {
	if a.held != b.held {
		return a.held < b.held
	}
	return a.network.Less(b.network.Addr)
}

// Listen returns l, bounded.
func (c *Connections) Listen(l net.Listener) net.Listener { return &boundListener{l, c} }

type boundListener struct {
	net.Listener
	connections *Connections
}

// Accept implements [net.Listener].
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if bound, ok := l.connections.admit(conn); ok {
			return bound, nil
		}
		_ = conn.Close()
	}
}

// admit gives a new connection a place.
func (c *Connections) admit(conn net.Conn) (*boundConn, bool) {
	bound := &boundConn{Conn: conn, connections: c, network: NetworkOf(conn.RemoteAddr().String())}
	bound.head.limiter, bound.head.network = c.heads, bound.network
	instead, ok := c.place(bound)
	if instead != nil {
		_ = instead.Conn.Close() // its server hears of that, and lets go of the rest
		c.seldom.Do(func() {
			c.log.Warn("there are as many connections as there may be: one without a request was closed to make room",
				"limit", c.most, "of", instead.network.String(), "for", bound.network.String())
		})
	}
	if !ok {
		c.seldom.Do(func() {
			c.log.Warn("there are as many connections as there may be, with a request each: a new one was closed",
				"limit", c.most, "of", bound.network.String())
		})
	}
	return bound, ok
}

// place enters a new connection. If another must be closed for it, place removes that one and
// returns it (instead).
func (c *Connections) place(bound *boundConn) (instead *boundConn, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most > 0 && c.open >= c.most {
		giver := giverFor(c.peers[bound.network], c.giving)
		if giver == nil {
			c.ended[endedFull]++
			return nil, false
		}
		instead, _ = giver.free.Front().Value.(*boundConn)
		c.removeLocked(instead)
		c.ended[endedRoom]++
	}
	p := c.peers[bound.network]
	if p == nil {
		p = &peer{network: bound.network}
		c.peers[bound.network] = p
	}
	bound.peer = p
	c.changeLocked(p, func() {
		p.held++
		bound.free = p.free.PushBack(bound)
	})
	c.open++
	return instead, true
}

// giverFor returns the peer that must lose a connection for a new one of own; nil if there is none.
// own is nil if it has no connection yet.
func giverFor(own *peer, giving *btree.BTreeG[*peer]) *peer {
	held := 0
	if own != nil {
		held = own.held
	}
	if most, ok := giving.Max(); ok && most.held > held {
		return most
	}
	if own != nil && own.free.Len() > 0 {
		return own
	}
	return nil
}

// changeLocked calls do, which may change p. Meanwhile p is not in the tree, whose order depends on
// it.
func (c *Connections) changeLocked(p *peer, do func()) {
	if p.free.Len() > 0 {
		c.giving.Delete(p)
	}
	do()
	if p.free.Len() > 0 {
		c.giving.ReplaceOrInsert(p)
	}
	if p.held == 0 {
		delete(c.peers, p.network)
	}
}

// removeLocked removes a connection that ends. Further calls do nothing.
func (c *Connections) removeLocked(b *boundConn) {
	if b.gone {
		return
	}
	b.gone = true
	c.changeLocked(b.peer, func() {
		b.peer.held--
		b.unfreeLocked()
	})
	c.open--
}

// boundConn is a connection of a [Connections].
type boundConn struct {
	net.Conn
	connections *Connections
	network     Network
	head        head

	// Of connections.mu.
	peer *peer
	uses map[ShareKey]int  // the requests of known callers
	kept *item[*boundConn] // in [Connections.kept]; nil if nobody protects it
	free *list.Element     // nil while it is protected, and when gone
	gone bool
}

func (b *boundConn) unfreeLocked() {
	if b.free != nil {
		b.peer.free.Remove(b.free)
		b.free = nil
	}
}

// Read implements [net.Conn].
func (b *boundConn) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if !b.head.more(n) {
		b.connections.endUnfinished(b)
		return 0, errUnfinished
	}
	return n, err
}

// Close implements [net.Conn].
func (b *boundConn) Close() error {
	b.connections.remove(b)
	b.head.reset(true) // nothing is counted any more
	return b.Conn.Close()
}

func (c *Connections) remove(b *boundConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(b)
}

// endUnfinished closes a connection on which too many bytes of an unfinished request have come.
func (c *Connections) endUnfinished(b *boundConn) {
	c.mu.Lock()
	c.ended[endedUnfinished]++
	c.mu.Unlock()
	_ = b.Close()
	c.seldom.Do(func() {
		c.log.Warn("a connection was closed: too much has come that is no whole request yet", "limit", headBudget, "network", b.network.String())
	})
}

// use protects the connection while a request of a known caller is served, if the caller may protect
// one more. end must be called once.
func (b *boundConn) use(caller ShareKey) (end func()) {
	if b.connections.most == 0 {
		return func() {} // none is closed for another
	}
	b.change(caller, 1)
	return func() { b.change(caller, -1) }
}

// change adds by to the number of the caller's requests on this connection.
func (b *boundConn) change(caller ShareKey, by int) {
	c := b.connections
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.uses == nil {
		b.uses = map[ShareKey]int{}
	}
	addTo(b.uses, caller, by)
	if b.kept != nil && b.uses[b.kept.of.caller] == 0 {
		c.kept.remove(b.kept)
		b.kept = nil
	}
	for user := range b.uses {
		if b.kept != nil {
			break
		}
		c.keepLocked(b, user)
	}
	c.refreshLocked(b)
}

// keepLocked makes a caller protect a connection, if it may.
func (c *Connections) keepLocked(b *boundConn, caller ShareKey) {
	keeps := c.kept.count(caller)
	if int64(keeps) >= mostOfOne(int64(c.most)) {
		return
	}
	if c.kept.total >= c.most-c.most/unkeptPart {
		taken := c.kept.spareFor(keeps)
		if taken == nil {
			return
		}
		c.kept.remove(taken)
		taken.value.kept = nil
		c.refreshLocked(taken.value)
	}
	b.kept = c.kept.add(caller, b)
}

// refreshLocked enters a connection among those that may be closed, or takes it out, as it is
// protected or not.
func (c *Connections) refreshLocked(b *boundConn) {
	if free := b.kept == nil; b.gone || free == (b.free != nil) {
		return
	}
	c.changeLocked(b.peer, func() {
		if b.kept != nil {
			b.unfreeLocked()
		} else {
			b.free = b.peer.free.PushBack(b)
		}
	})
}

// addTo counts in a map that holds no zeroes.
func addTo(counts map[ShareKey]int, of ShareKey, by int) {
	if counts[of] += by; counts[of] == 0 {
		delete(counts, of)
	}
}

// ConnectionStats is what a [Connections] has, and what it has ended.
type ConnectionStats struct {
	// Open is the number of connections, Networks the number of networks that have one.
	Open, Networks int
	// Limit is the bound, 0 if there is none.
	Limit int
	Ended map[ConnectionEnd]uint64
}

// Stats returns the state of now.
func (c *Connections) Stats() ConnectionStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := ConnectionStats{Open: c.open, Networks: len(c.peers), Limit: c.most, Ended: map[ConnectionEnd]uint64{}}
	for _, why := range ConnectionEnds() {
		s.Ended[why] = c.ended[why]
	}
	return s
}
