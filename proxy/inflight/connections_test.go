package inflight

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/test/expect"
)

// addressedConn is a connection from an address that a test chooses.
type addressedConn struct {
	net.Conn
	remote string
	closed atomic.Bool
}

type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

func (c *addressedConn) RemoteAddr() net.Addr { return textAddr(c.remote) }

func (c *addressedConn) Close() error {
	c.closed.Store(true)
	if c.Conn == nil {
		return nil
	}
	return c.Conn.Close()
}

func newConnections(t testing.TB, most int) *Connections {
	t.Helper()
	c, err := NewConnections(most, slog.New(slog.DiscardHandler))
	expect.NoError(t, err)
	return c
}

// crowd opens connections, of which it knows which were closed.
type crowd struct {
	*testing.T
	connections *Connections
	bare        []*addressedConn
	bound       []*boundConn
}

// open opens n from an address, and says how many came in.
func (c *crowd) open(n int, host string) (in int) {
	for i := range n {
		conn := &addressedConn{remote: net.JoinHostPort(host, fmt.Sprint(1000+i))}
		bound, ok := c.connections.admit(conn)
		if ok {
			in++
			c.bare, c.bound = append(c.bare, conn), append(c.bound, bound)
		}
	}
	return in
}

// has says how many connections a network has, by what was not closed.
func (c *crowd) has(host string) (n int) {
	want := NetworkOf(net.JoinHostPort(host, "1"))
	for i, conn := range c.bare {
		if !conn.closed.Load() && c.bound[i].network == want {
			n++
		}
	}
	return n
}

// TestConnectionsOfOthersComeIn: whoever has all connections gives some up for those who have less,
// and nobody has to for who has most.
func TestConnectionsOfOthersComeIn(t *testing.T) {
	c := &crowd{T: t, connections: newConnections(t, 50)}
	if in := c.open(80, "192.0.2.1"); in != 80 || c.has("192.0.2.1") != 50 {
		t.Errorf("of a load balancer %d came in, and %d are open", in, c.has("192.0.2.1"))
	}
	if !c.bare[0].closed.Load() || c.bare[79].closed.Load() {
		t.Error("not the oldest were closed")
	}
	if in := c.open(40, "192.0.2.2"); in != 40 || c.has("192.0.2.1") != 25 || c.has("192.0.2.2") != 25 {
		t.Errorf("%d of a second came in: they have %d and %d", in, c.has("192.0.2.1"), c.has("192.0.2.2"))
	}
	if in := c.open(1, "192.0.2.3"); in != 1 || c.has("192.0.2.3") != 1 {
		t.Error("a third has none")
	}
	c.open(200, "192.0.2.1")
	if a, b, third := c.has("192.0.2.1"), c.has("192.0.2.2"), c.has("192.0.2.3"); a+b+third != 50 || third != 1 || b < 24 {
		t.Errorf("after the first came again: %d, %d and %d", a, b, third)
	}
	// All addresses of a network of IPv6 are one.
	for i := range 100 {
		c.open(1, fmt.Sprintf("2001:db8::%x", i+1))
	}
	if n, third := c.has("2001:db8::1"), c.has("192.0.2.3"); n > 18 || third != 1 {
		t.Errorf("a network of IPv6 has %d, the third %d", n, third)
	}
	stats := c.connections.Stats()
	if stats.Open != 50 || stats.Networks != 4 || stats.Ended[endedRoom] != uint64(len(c.bare)-50) || stats.Ended[endedFull] != 0 {
		t.Errorf("%+v of %d", stats, len(c.bare))
	}
	for _, bound := range c.bound {
		_ = bound.Close()
		_ = bound.Close() // counts once
	}
	if stats := c.connections.Stats(); stats.Open != 0 || stats.Networks != 0 || c.connections.giving.Len() != 0 {
		t.Errorf("when all are closed: %+v", stats)
	}
}

// TestConnectionInUse: one with a request of a known caller stays, and who finds only such is
// turned away.
func TestConnectionInUse(t *testing.T) {
	c := &crowd{T: t, connections: newConnections(t, 3)}
	c.open(3, "192.0.2.1")
	alice, bob := ShareKey{1}, ShareKey{2}
	first, second, third := c.bound[0].use(alice), c.bound[1].use(bob), c.bound[2].use(bob)
	also := c.bound[0].use(alice)
	if c.open(1, "192.0.2.2") != 0 {
		t.Error("one in use was closed")
	}
	first()
	if c.open(1, "192.0.2.2") != 0 {
		t.Error("one with a second request was closed")
	}
	second()
	also()
	if c.open(1, "192.0.2.2") != 1 || !c.bare[1].closed.Load() {
		t.Error("the one that has been without a request for longest is another")
	}
	// Who has as much as the one that has the most gives of its own, or is turned away.
	third()
	c.bound[0].use(alice)
	c.bound[3].use(alice)
	c.bound[2].use(bob)
	if c.open(1, "192.0.2.1") != 0 {
		t.Error("there was nothing to close")
	}
	if stats := c.connections.Stats(); stats.Ended[endedFull] != 3 || stats.Open != 3 {
		t.Errorf("%+v", stats)
	}
	_ = c.bound[3].Close()
	if c.open(1, "192.0.2.9") != 1 {
		t.Error("no place after one was closed")
	}
}

// TestOneCallerKeepsHalfOfTheConnections: what it has beyond that gives way, the oldest first.
func TestOneCallerKeepsHalfOfTheConnections(t *testing.T) {
	const most = 8
	c := &crowd{T: t, connections: newConnections(t, most)}
	alice, bob := ShareKey{1}, ShareKey{2}
	c.open(most, "192.0.2.1")
	var ends []func()
	for _, bound := range c.bound {
		for range 3 { // of which all count as one connection
			ends = append(ends, bound.use(alice))
		}
	}
	if in := c.open(most, "192.0.2.2"); in != most || c.has("192.0.2.1") != most/2 {
		t.Errorf("%d of another network came in, where one caller has %d", in, c.has("192.0.2.1"))
	}
	for i, conn := range c.bare[:most] {
		if gone := i >= most/2; conn.closed.Load() != gone {
			t.Errorf("%d was closed: %t", i, !gone)
		}
	}
	// Another caller keeps a connection, whoever else is on it.
	ofBob := c.bound[most+most/2:]
	for _, bound := range ofBob {
		ends = append(ends, bound.use(alice), bound.use(bob))
	}
	if c.open(1, "192.0.2.3") != 0 {
		t.Error("one of another caller was closed")
	}
	for _, end := range ends {
		end()
	}
	if len(c.connections.kept.callers) != 0 {
		t.Errorf("without a request: %v", c.connections.kept.callers)
	}
	for _, bound := range c.bound {
		if bound.kept != nil || len(bound.uses) != 0 {
			t.Errorf("without a request: %+v", bound)
		}
	}
	if in := c.open(1, "192.0.2.3"); in != 1 {
		t.Error("none came in when all were without a request")
	}
}

// TestTwoCallersLeaveConnections: where two callers have all connections, with a request on each,
// others come in and stay: from other networks, and behind the same load balancer. Who comes takes
// no more than the same.
func TestTwoCallersLeaveConnections(t *testing.T) {
	const most, others = 96, 10
	for name, hosts := range map[string][3]string{
		"other networks": {"192.0.2.1", "192.0.2.2", "192.0.2.3"},
		"one network":    {"192.0.2.1", "192.0.2.1", "192.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &crowd{T: t, connections: newConnections(t, most)}
			for i := range most {
				c.open(1, hosts[i%2])
				c.bound[i].use(ShareKey{byte(i % 2)})
			}
			for i := range others {
				if c.open(1, hosts[2]) != 1 {
					t.Fatalf("%d came in", i)
				}
				c.bound[most+i].use(ShareKey{2 + byte(i)})
			}
			if keeps := c.connections.kept.count(ShareKey{0}) + c.connections.kept.count(ShareKey{1}); keeps != most-most/unkeptPart-others {
				t.Errorf("the two keep %d", keeps)
			}
			for range most {
				if c.open(1, hosts[2]) == 1 {
					c.bound[len(c.bound)-1].use(ShareKey{200})
				}
			}
			if keeps, network := c.connections.kept.count(ShareKey{200}), most/3; keeps < network-others {
				t.Errorf("who came last keeps %d", keeps)
			}
			for range most { // who have a request already are not closed for these
				c.open(1, "192.0.2.4")
			}
			for i, conn := range c.bare[most : most+others] {
				if conn.closed.Load() {
					t.Errorf("%d was closed", i)
				}
			}
		})
	}
}

// TestEqualsTakeNoConnections: callers with one connection each take none from each other.
func TestEqualsTakeNoConnections(t *testing.T) {
	const most = 32
	c := &crowd{T: t, connections: newConnections(t, most)}
	for i := range 2 * most {
		if c.open(1, "192.0.2.1") != 1 {
			t.Fatalf("%d did not come in", i)
		}
		c.bound[i].use(ShareKey{byte(i)})
	}
	for i, conn := range c.bare[:most-most/unkeptPart] {
		if conn.closed.Load() {
			t.Errorf("%d was closed", i)
		}
	}
}

// TestKeptConnections: each caller keeps up to half, and what others keep does not count to that.
func TestKeptConnections(t *testing.T) {
	c := &crowd{T: t, connections: newConnections(t, 4)}
	c.open(4, "192.0.2.1")
	end := c.bound[0].use(ShareKey{1})
	c.bound[1].use(ShareKey{1})
	late := c.bound[2].use(ShareKey{1})
	c.bound[3].use(ShareKey{2})
	end()
	c.bound[2].use(ShareKey{1}) // there is room now
	late()
	if c.open(1, "192.0.2.2") != 1 || !c.bare[0].closed.Load() {
		t.Error("not the one without a request was closed")
	}
	_ = c.bound[1].Close()
	if c.connections.kept.count(ShareKey{1}) != 2 {
		t.Error("a connection counts no more before its request ends")
	}
}

// TestNoBoundOnConnections: 0 is any number.
func TestNoBoundOnConnections(t *testing.T) {
	c := &crowd{T: t, connections: newConnections(t, 0)}
	if in := c.open(1000, "192.0.2.1"); in != 1000 || c.has("192.0.2.1") != 1000 {
		t.Error(in)
	}
	if _, err := NewConnections(-1, nil); err == nil {
		t.Error("a negative bound was accepted")
	}
}

// TestUnfinishedHeads: what has come without a request is bounded over all connections, a network
// has half, and a request gives it back.
func TestUnfinishedHeads(t *testing.T) {
	c := &crowd{T: t, connections: newConnections(t, 0)}
	const each = headBudget / headUnit
	c.open(each, "192.0.2.1")
	c.open(each, "192.0.2.2")
	c.open(1, "192.0.2.3")
	large := func(b *boundConn) bool { return b.head.more(headFree + 1) }
	came := 0
	for _, b := range c.bound[:each] {
		if !b.head.more(headFree) {
			t.Fatal("what is mostly enough was refused")
		}
		if b.head.more(1) {
			came++
		}
	}
	if came != each/2 {
		t.Errorf("%d large ones of one network, of %d in all", came, each)
	}
	for _, b := range c.bound[each : 2*each] {
		if large(b) {
			came++
		}
	}
	if came != each {
		t.Errorf("%d large ones, of %d", came, each)
	}
	last := c.bound[2*each]
	if large(last) {
		t.Error("more than there is room for")
	}
	last.head.reset(false)
	NoteState(c.bound[0], http.StateActive)
	if !large(last) {
		t.Error("a request gives nothing back")
	}
	if !c.bound[0].head.more(10 * headUnit) {
		t.Error("what comes of a request is counted")
	}
	_ = c.bound[1].Close()
	NoteState(c.bound[0], http.StateIdle)
	if !large(c.bound[0]) {
		t.Error("a closed connection gives nothing back")
	}
	for _, b := range c.bound {
		_ = b.Close()
	}
	if held := c.connections.heads.Stats().InUse; held != 0 {
		t.Errorf("%d bytes are held when all are closed", held)
	}
}

// addressedListener gives its connections an address.
type addressedListener struct {
	net.Listener
	remote string
}

func (l addressedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &addressedConn{Conn: conn, remote: l.remote}, nil
}

// maxHeader bounds the heads of requests.
const maxHeader = 64 << 10

// serveBound serves a handler on a bounded listener for two networks, and returns how each dials.
func serveBound(t *testing.T, c *Connections, handler http.Handler) (dial map[string]func() net.Conn) {
	t.Helper()
	server := &http.Server{Handler: handler, ConnContext: WithConnection, ConnState: NoteState, MaxHeaderBytes: maxHeader}
	dial = map[string]func() net.Conn{}
	done := make(chan struct{})
	for _, remote := range []string{"192.0.2.1:1", "192.0.2.2:1"} {
		listener := proxytest.NewPipeListener()
		go func() {
			_ = server.Serve(c.Listen(addressedListener{listener, remote})) // until it is closed
			done <- struct{}{}
		}()
		dial[remote] = func() net.Conn {
			conn, _ := listener.Dial(t.Context(), "", "")
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
	}
	t.Cleanup(func() {
		_ = server.Close()
		<-done
		<-done
	})
	return dial
}

// TestServedConnectionInUse: a request of a known caller keeps its connection, any other does not.
func TestServedConnectionInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := newConnections(t, 2)
		dial := serveBound(t, connections, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/known" {
				defer UseConnection(r.Context(), ShareKey{r.RemoteAddr[8]})()
			}
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}))
		open := func(remote, path string) net.Conn {
			conn := dial[remote]()
			if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
				return nil
			}
			if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
				return nil
			}
			return conn
		}
		known := open("192.0.2.1:1", "/known")
		unknown := open("192.0.2.1:1", "/")
		if known == nil || unknown == nil {
			t.Fatal("not open")
		}
		if open("192.0.2.2:1", "/known") == nil {
			t.Fatal("another network finds no place")
		}
		if _, err := unknown.Read(make([]byte, 1)); err == nil {
			t.Error("the unknown caller's connection is open")
		}
		if open("192.0.2.2:1", "/") != nil {
			t.Error("there was a place where all were in use")
		}
		_ = known.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := known.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the known caller's connection has ended: %v", err)
		}
	})
}

// TestServedUpgrade: what comes on an upgraded connection is no unfinished request, however much.
func TestServedUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = headBudget + headUnit
		connections := newConnections(t, 0)
		came := make(chan int64, 1)
		dial := serveBound(t, connections, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			n, _ := io.CopyN(io.Discard, buffered, size)
			came <- n
			_ = conn.Close()
		}))
		conn := dial["192.0.2.1:1"]()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = conn.Write(make([]byte, size))
		if n := <-came; n != size {
			t.Errorf("%d bytes came of an upgraded connection, want %d", n, size)
		}
		if held := connections.heads.Stats().InUse; held != 0 {
			t.Errorf("an upgraded connection holds %d bytes of unfinished requests", held)
		}
	})
}

// TestServedHeads: an unfinished header holds its bytes, and gives them back when it is whole.
func TestServedHeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := newConnections(t, 0)
		dial := serveBound(t, connections, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		conn := dial["192.0.2.1:1"]()
		head := "GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 2*headFree)
		for range 2 {
			if _, err := io.WriteString(conn, head); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if held := connections.heads.Stats().InUse; held != headUnit {
				t.Errorf("%d bytes are held", held)
			}
			if _, err := io.WriteString(conn, "\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || res.StatusCode != http.StatusOK {
				t.Fatal(err)
			}
			synctest.Wait()
			if held := connections.heads.Stats().InUse; held != 0 {
				t.Errorf("%d bytes are held after the answer", held)
			}
		}
		go func() {
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("a", maxHeader+8192)+"\r\n\r\n") // as far as it is read
		}()
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a header that is too large: %v", err)
		}
		_ = conn.Close()
		time.Sleep(time.Second) // net/http waits for the client to have read it
	})
}
