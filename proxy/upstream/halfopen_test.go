package upstream

import (
	"bytes"
	"context"
	"encoding/json"
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

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

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

// leaseLock writes a Lease through up, as client-go's LeaseLock does. Only its holder writes, so Get may answer from memory.
type leaseLock struct {
	resourcelock.Interface
	holder auth.Identity
	up     *Transports
	record resourcelock.LeaderElectionRecord
}

func (l *leaseLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	raw, err := json.Marshal(l.record)
	return &l.record, raw, err
}

func (l *leaseLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, l.up.URL().String()+"/lease", bytes.NewReader([]byte("{}")))
	if err != nil {
		return err
	}
	l.holder.SetHeaders(r.Header)
	res, err := l.up.RoundTripper(l.holder, &kubehttp.Request{}).RoundTrip(r)
	if err != nil {
		return err
	}
	l.record = record
	return res.Body.Close()
}

func (l *leaseLock) Identity() string   { return "holder" }
func (l *leaseLock) Describe() string   { return "lock" }
func (l *leaseLock) RecordEvent(string) {}

// newHalfOpenUpstream returns Transports to server, and a function that makes all their connections half-open.
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
	up, err := New(cfg)
	expect.NoError(t, err)
	return up, func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range connections {
			c.isLosing.Store(true)
		}
	}
}

// Settings of client-go's leader election, as most controllers have them.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// newElector returns an elector, whose lock is held by a caller of up, and which fails the test if it loses the lock before ctx
// ends.
func newElector(ctx context.Context, t *testing.T, up *Transports, holder auth.Identity) *leaderelection.LeaderElector {
	t.Helper()
	up.RecordAnswer(holder, notUpgraded, http.MethodGet, http.StatusOK) // so that it shares connections
	onLost := func() {
		if ctx.Err() == nil {
			t.Error("an elector has lost its lock")
		}
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &leaseLock{holder: holder, up: up}, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: onLost},
	})
	expect.NoError(t, err)
	return elector
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

// TestHalfOpenConnections: half-open connections of short requests end so soon that no caller loses the lock of a leader
// election, even if its client waits for an answer without a bound. A watch lasts as long as on a connection of
// client-go's own, since the API server may only stand still for a moment.
func TestHalfOpenConnections(t *testing.T) {
	const readIdleTimeout = 30 * time.Second // client-go's: only then does it ping a silent connection
	synctest.Test(t, func(t *testing.T) {
		const electors = 20
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/watch" {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		}))
		server.EnableHTTP2 = true
		up, loseAll := newHalfOpenUpstream(t, server)
		ctx, end := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
		var running sync.WaitGroup
		identities := auth.NewAuthenticator(nil)
		for i := range electors {
			elector := newElector(ctx, t, up, proxytest.Identify(identities, fmt.Sprint("Bearer ", i)))
			running.Go(func() { elector.Run(ctx) })
			time.Sleep(retryPeriod / electors) // spreads the renewals
		}
		watchEnded := startWatch(t, up, proxytest.Identify(identities, "Bearer 0"))

		time.Sleep(5 * retryPeriod) // all electors have renewed on open connections
		loseAll()
		begun := time.Now()
		err := <-watchEnded
		if lasted := time.Since(begun); err == nil || lasted < readIdleTimeout {
			t.Errorf("the watch ended after %v with %v, want an error after at least %v", lasted, err, readIdleTimeout)
		}
		time.Sleep(renewDeadline) // the electors' last chance to lose their locks
		end()
		running.Wait()
		up.current.Load().closeIdle()
		server.CloseClientConnections()
	})
}
