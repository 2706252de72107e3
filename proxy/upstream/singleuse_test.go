package upstream

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/test/expect"
)

// dialed are the connections that were opened to an upstream in a bubble.
type dialed struct {
	mu    sync.Mutex
	conns []weak.Pointer[dialedConn]
	open  int
}

type dialedConn struct {
	net.Conn
	of    *dialed
	close sync.Once
}

// Close implements [net.Conn].
func (c *dialedConn) Close() error {
	c.close.Do(func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.open--
	})
	return c.Conn.Close()
}

func (d *dialed) add(conn net.Conn) net.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	is := &dialedConn{Conn: conn, of: d}
	d.conns, d.open = append(d.conns, weak.Make(is)), d.open+1
	return is
}

// counts are how many were opened, how many of them are open, and how many take memory.
func (d *dialed) counts() (all, open, kept int) {
	runtime.GC()
	runtime.GC()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range d.conns {
		if conn.Value() != nil {
			kept++
		}
	}
	return len(d.conns), d.open, kept
}

// to returns the way to server, whose connections are counted.
func (d *dialed) to(t *testing.T, server *httptest.Server, dial func(context.Context, string, string) (net.Conn, error)) *Transports {
	t.Helper()
	config := proxytest.UpstreamServer{Server: server}.Config()
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return d.add(conn), nil
	}
	up, err := New(config)
	expect.NoError(t, err)
	return up
}

// refuseAll is an upstream that accepts no token.
func refuseAll(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }

// inPipes serves refuseAll over HTTP/2 in a bubble.
func inPipes(t *testing.T) (*httptest.Server, *proxytest.PipeListener) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(refuseAll))
	server.EnableHTTP2 = true
	return server, proxytest.StartInPipes(t, server)
}

// askAtOnce sends requests of callers whom the upstream has not accepted, all at once.
func askAtOnce(t *testing.T, up *Transports, requests int) {
	t.Helper()
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			if err := askUnknown(t.Context(), t, up); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// askUnknown sends a request of a caller that the upstream has not accepted.
func askUnknown(ctx context.Context, t *testing.T, up *Transports) error {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, up.URL().String()+"/api/v1/pods", http.NoBody)
	expect.NoError(t, err)
	res, err := up.current.Load().unauthenticated.RoundTrip(r)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d", res.StatusCode)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return res.Body.Close()
}

const unknownRequests = 30

// TestUnknownCallersConnections: what is sent at once for callers whom the upstream has not
// accepted goes over one connection each, which ends with it.
func TestUnknownCallersConnections(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			var conns dialed
			up := conns.to(t, proxytest.StartUpstream(t, http2, refuseAll).Server, new(net.Dialer).DialContext)
			askAtOnce(t, up, unknownRequests)
			opened, open, _ := conns.counts()
			for ; open > 0; _, open, _ = conns.counts() {
				time.Sleep(time.Millisecond)
			}
			if opened != unknownRequests {
				t.Errorf("%d requests: %d connections", unknownRequests, opened)
			}
		})
	}
}

// TestEndedConnectionsAreForgotten: a few seconds after they have ended, such connections take no
// memory.
func TestEndedConnectionsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conns dialed
		server, listener := inPipes(t)
		askAtOnce(t, conns.to(t, server, listener.Dial), unknownRequests)
		time.Sleep(unprovenPing + time.Second)
		synctest.Wait()
		if opened, open, kept := conns.counts(); open != 0 || kept != 0 {
			t.Errorf("%d connections: %d are open, %d take memory", opened, open, kept)
		}
	})
}

// TestGivenUpHandshakes: who gives a request up has the handshake for it given up.
func TestGivenUpHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conns dialed
		server, _ := inPipes(t)
		up := conns.to(t, server, func(context.Context, string, string) (net.Conn, error) {
			conn, deaf := net.Pipe()
			t.Cleanup(func() { _ = deaf.Close() })
			return conn, nil
		})
		ctx, giveUp := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- askUnknown(ctx, t, up) }()
		synctest.Wait()
		if _, open, _ := conns.counts(); open != 1 {
			t.Fatalf("%d connections are open", open)
		}
		giveUp()
		if err := <-ended; err == nil {
			t.Error("answered")
		}
		synctest.Wait()
		if _, open, _ := conns.counts(); open != 0 {
			t.Error("the connection is open still")
		}
	})
}
