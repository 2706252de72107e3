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
// It does not give each address a part. Behind a load balancer, or a node that translates
// addresses, everybody has the same one, and that one must be able to have all connections; while
// two attackers have two addresses. Instead, who has the least comes in first (max-min fairness):
// where there is no room, a new connection takes the place of one of the network that has the most,
// if that has more than its own, or of one of its own network. Closed is the connection that has
// been without a request for longest.
//
// Never closed is one with a request of a caller whom the upstream knows, as long as these are no
// more than half of all for one caller: with watches, one each, it could else keep all of them. A
// request of anybody else holds no place: who makes up tokens could else keep one for each of them.
// If there is nothing to close, the new connection is closed. It does not wait, since it would hold
// up those behind it, for which there may be room.
//
// A Connections is safe for concurrent use.
type Connections struct {
	most  int // 0: any number
	heads *Limiter[Network]
	log   *slog.Logger
	// seldom is for what callers can make the log say.
	seldom telemetry.Seldom

	mu    sync.Mutex
	open  int
	peers map[Network]*peer
	// kept is how many connections each caller keeps from being closed.
	kept map[ShareKey]int
	// giving are the peers of which a connection could be closed, that with the most connections
	// last.
	giving *btree.BTreeG[*peer]
	ended  map[connectionEnd]uint64
}

// connectionEnd is why a connection was ended that its client had not ended.
type connectionEnd string

const (
	// endedRoom: it was without a request for longest, and a new one needed the place.
	endedRoom connectionEnd = "room"
	// endedFull: it was new, and there was nothing to close in its place.
	endedFull connectionEnd = "full"
	// endedUnfinished: too much has come on all connections that is no request yet ([headBudget]).
	endedUnfinished connectionEnd = "unfinished"
)

func connectionEnds() []connectionEnd {
	return []connectionEnd{endedRoom, endedFull, endedUnfinished}
}

// ConnectionEnds returns every reason for which listproxy ends a connection, for documentation and
// tests.
func ConnectionEnds() []string {
	var reasons []string
	for _, why := range connectionEnds() {
		reasons = append(reasons, string(why))
	}
	return reasons
}

// peer is a network with connections.
type peer struct {
	network Network
	held    int
	// free are the connections that no caller keeps, that which none has kept for longest first.
	free list.List
}

// NewConnections returns a Connections for at most so many at a time, 0 for any number.
func NewConnections(most int, log *slog.Logger) (*Connections, error) {
	heads, err := NewLimiter[Network](LimiterConfig{Capacity: headBudget, PerCaller: mostOfOne(headBudget)})
	if most < 0 || err != nil {
		return nil, fmt.Errorf("the bound on connections, %d, must not be negative", most)
	}
	return &Connections{
		most: most, heads: heads, log: log, peers: map[Network]*peer{}, kept: map[ShareKey]int{},
		giving: btree.NewG(inNeedDegree, holdsLess), ended: map[connectionEnd]uint64{},
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

// place enters a new connection, and takes out the one that is to be closed in its place.
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

// giverFor says who is to lose a connection for a new one of own, which is nil if it has none, or
// nil if nobody is.
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

// changeLocked lets do change a peer, which is out of its order meanwhile.
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

// removeLocked takes a connection out that ends, once.
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
	peer    *peer
	uses    map[ShareKey]use // of known callers who have a request
	keepers int              // those of them who keep the connection
	free    *list.Element    // nil while it is kept, and when gone
	gone    bool
}

// use is what one caller does with a connection.
type use struct {
	requests int
	keeps    bool // counted in [Connections.kept]
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

// endUnfinished ends a connection of which too much came that is no request.
func (c *Connections) endUnfinished(b *boundConn) {
	c.mu.Lock()
	c.ended[endedUnfinished]++
	c.mu.Unlock()
	_ = b.Close()
	c.seldom.Do(func() {
		c.log.Warn("a connection was closed: too much has come that is no whole request yet", "limit", headBudget, "network", b.network.String())
	})
}

// use keeps the connection open while a request of a known caller is served, unless that caller
// keeps half of all already. The end must be called once.
func (b *boundConn) use(caller ShareKey) (end func()) {
	if b.connections.most == 0 {
		return func() {} // none is closed for another
	}
	b.change(caller, 1)
	return func() { b.change(caller, -1) }
}

// change notes that so many requests of a caller have begun.
func (b *boundConn) change(caller ShareKey, by int) {
	c := b.connections
	c.mu.Lock()
	defer c.mu.Unlock()
	u := b.uses[caller]
	u.requests += by
	keeps := u.requests > 0 && (u.keeps || int64(c.kept[caller]) < mostOfOne(int64(c.most)))
	if keeps != u.keeps {
		u.keeps = keeps
		step := 1
		if !keeps {
			step = -1
		}
		b.keepers += step
		addTo(c.kept, caller, step)
	}
	if u.requests == 0 {
		delete(b.uses, caller)
	} else {
		if b.uses == nil {
			b.uses = map[ShareKey]use{}
		}
		b.uses[caller] = u
	}
	if free := b.keepers == 0; b.gone || free == (b.free != nil) {
		return
	}
	c.changeLocked(b.peer, func() {
		if b.keepers > 0 {
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
	// Open are all connections, Networks those that have one.
	Open, Networks int
	// Limit is the bound, 0 if there is none.
	Limit int
	Ended map[connectionEnd]uint64
}

// Stats returns the state of now.
func (c *Connections) Stats() ConnectionStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := ConnectionStats{Open: c.open, Networks: len(c.peers), Limit: c.most, Ended: map[connectionEnd]uint64{}}
	for _, why := range connectionEnds() {
		s.Ended[why] = c.ended[why]
	}
	return s
}
