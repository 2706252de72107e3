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

// lock is a lock of client-go's leader election: a Lease at the API server, which only its holder writes.
type lock struct {
	resourcelock.Interface
	holder auth.Identity
	to     *Transports
	record resourcelock.LeaderElectionRecord
}

func (l *lock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	raw, err := json.Marshal(l.record)
	return &l.record, raw, err
}

func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, l.to.URL().String()+"/lease", bytes.NewReader([]byte("{}")))
	if err != nil {
		return err
	}
	l.holder.Present(r.Header)
	res, err := l.to.RoundTripper(l.holder, &kubehttp.Request{}).RoundTrip(r)
	if err != nil {
		return err
	}
	l.record = record
	return res.Body.Close()
}

func (l *lock) Identity() string   { return "holder" }
func (l *lock) Describe() string   { return "lock" }
func (l *lock) RecordEvent(string) {}

// TestHalfOpenConnections: half-open connections of short requests end so soon that no caller loses the lock of a leader
// election, even if its client waits for an answer without a bound. A watch lasts as long as on a connection of
// client-go's own, since the API server may only stand still for a moment.
func TestHalfOpenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const electors = 20
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/watch" {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		}))
		server.EnableHTTP2 = true
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
		ctx, end := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
		var running sync.WaitGroup
		identities := auth.NewAuthenticator(nil)
		for i := range electors {
			l := &lock{holder: proxytest.Identify(identities, fmt.Sprint("Bearer ", i)), to: up}
			up.RecordAnswer(l.holder, false, http.MethodGet, http.StatusOK)
			elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
				Lock: l, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
				Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {
					if ctx.Err() == nil {
						t.Errorf("elector %d has lost its lock", i)
					}
				}},
			})
			expect.NoError(t, err)
			running.Go(func() { elector.Run(ctx) })
			time.Sleep(2 * time.Second / electors) // spreads the renewals
		}
		watcher := proxytest.Identify(identities, "Bearer 0")
		res, err := up.RoundTripper(watcher, &kubehttp.Request{LongRunning: true}).RoundTrip(request(t, up, watcher, "/watch"))
		expect.NoError(t, err)
		watched := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, res.Body)
			watched <- errors.Join(err, res.Body.Close())
		}()

		time.Sleep(10 * time.Second)
		mu.Lock()
		for _, c := range connections {
			c.isLosing.Store(true)
		}
		mu.Unlock()
		begun := time.Now()
		if err := <-watched; err == nil || time.Since(begun) < 30*time.Second {
			t.Errorf("the watch ended after %v with %v, want an error after 30s at least", time.Since(begun), err)
		}
		time.Sleep(10 * time.Second)
		end()
		running.Wait()
		up.current.Load().closeIdle()
		server.CloseClientConnections()
	})
}
