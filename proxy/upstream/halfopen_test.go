package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// halfOpen is a connection that loses all bytes in both directions, without an error, once isLosing is set.
type halfOpen struct {
	net.Conn
	isLosing atomic.Bool
}

func (c *halfOpen) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.isLosing.Load() {
			return n, err
		}
	}
}

func (c *halfOpen) Write(p []byte) (int, error) {
	if c.isLosing.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// newHalfOpenUpstream returns Transports to server. loseAll makes all their connections half-open.
func newHalfOpenUpstream(t *testing.T, server *httptest.Server) (up *Transports, loseAll func()) {
	t.Helper()
	network := proxytest.StartInPipes(t, server)
	var mu sync.Mutex
	var connections []*halfOpen
	cfg := proxytest.UpstreamServer{Server: server}.Config()
	cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := network.Dial(ctx, "", "")
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		connections = append(connections, &halfOpen{Conn: conn})
		return connections[len(connections)-1], nil
	}
	up, err := New(cfg, impersonatesNobody)
	expect.NoError(t, err)
	return up, func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range connections {
			c.isLosing.Store(true)
		}
	}
}

// startWatch opens a watch of a caller, and returns a channel for the error with which it ends.
func startWatch(t *testing.T, up *Transports, watcher auth.Identity) <-chan error {
	t.Helper()
	res, err := up.RoundTripper(watcher, &kubehttp.Request{LongRunning: true}).RoundTrip(request(t, up, watcher, "/watch"))
	expect.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, res.Body)
		ended <- errors.Join(err, res.Body.Close())
	}()
	return ended
}

// TestHalfOpenConnections: at one moment, all connections begin to lose their bytes without an error. Those of short requests
// are closed so soon that no caller loses the lock of a leader election, even if its client waits for an answer without a
// bound. A watch lasts for at least 30 s, after which client-go would send its first ping: the API server may only stand still
// for a moment.
func TestHalfOpenConnections(t *testing.T) {
	const (
		callers = 20
		// readIdleTimeout is the time without a frame after which client-go pings a connection.
		readIdleTimeout = 30 * time.Second
		// retryPeriod is the time after which most controllers renew their lock of a leader election.
		retryPeriod = 2 * time.Second
		// renewDeadline is the time after which they lose the lock if no renewal succeeds.
		renewDeadline = 10 * time.Second
	)
	synctest.Test(t, func(t *testing.T) {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/watch" {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		}))
		server.EnableHTTP2 = true
		up, loseAll := newHalfOpenUpstream(t, server)
		renew := func(id auth.Identity) error {
			return get(t, up, up.RoundTripper(id, &kubehttp.Request{}), id, "/lease")
		}
		// Each caller renews its lock once, and the first one opens a watch.
		var ids []auth.Identity
		for i := range callers {
			id := proxytest.Identify(auth.NewAuthenticator(nil), fmt.Sprint("Bearer ", i))
			up.RecordAnswer(id, notUpgraded, http.MethodGet, http.StatusOK) // so that the caller shares connections
			expect.NoError(t, renew(id))
			ids = append(ids, id)
		}
		watchEnded := startWatch(t, up, ids[0])
		// From now on, the open connections lose everything. Each caller tries to renew its lock until it succeeds.
		loseAll()
		lost := time.Now()
		var renewals sync.WaitGroup
		for i, id := range ids {
			renewals.Go(func() {
				time.Sleep(time.Duration(i) * retryPeriod / callers) // spreads the renewals
				renewalBegan := time.Now()
				retries := time.NewTicker(retryPeriod)
				for renew(id) != nil {
					<-retries.C
				}
				if took := time.Since(renewalBegan); took >= renewDeadline {
					t.Errorf("caller %d has renewed its lock after %v, want less than %v", i, took, renewDeadline)
				}
			})
		}
		err := <-watchEnded
		if lasted := time.Since(lost); err == nil || lasted < readIdleTimeout {
			t.Errorf("the watch ended after %v with %v, want an error after at least %v", lasted, err, readIdleTimeout)
		}
		renewals.Wait()
		up.current.Load().closeIdle()
		server.CloseClientConnections()
	})
}
