package upstream

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/test/expect"
)

// busyServer is an API server that can be made to answer late, and to stand still.
type busyServer struct {
	listener *proxytest.PipeListener
	server   *httptest.Server
	late     atomic.Bool // /readyz is not answered in time
	still    atomic.Bool // no byte is sent, whatever comes
	gone     atomic.Bool // connections are refused
}

func newBusyServer(t *testing.T) *busyServer {
	b := &busyServer{listener: proxytest.NewPipeListener()}
	b.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/readyz":
			if b.late.Load() {
				<-r.Context().Done()
			}
		case "/version":
			_, _ = w.Write([]byte(`{"gitVersion":"v1.36.3"}`))
		case "/watch":
			b.watch(w, r)
		}
	}))
	_ = b.server.Listener.Close()
	b.server.Listener = b.listener
	b.server.Config.ErrorLog = log.New(io.Discard, "", 0) // of checks that went
	b.server.StartTLS()
	t.Cleanup(b.server.Close)
	return b
}

// watch sends a byte every three seconds, as heartbeats and events do.
func (b *busyServer) watch(w http.ResponseWriter, r *http.Request) {
	every := time.NewTicker(3 * time.Second)
	defer every.Stop()
	for {
		if !b.still.Load() {
			_, _ = w.Write([]byte{'\n'})
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-r.Context().Done():
			return
		case <-every.C:
		}
	}
}

// dial connects to b. While b stands still, what its operating system accepts is answered by
// nobody.
func (b *busyServer) dial(ctx context.Context) (net.Conn, error) {
	if b.gone.Load() {
		return nil, errors.New("connection refused")
	}
	if b.still.Load() {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		return near, nil
	}
	return b.listener.Dial(ctx, "", "")
}

// busyRig is two API servers, of which the first has a watch.
type busyRig struct {
	busy, other *busyServer
	endpoints   *Endpoints
	ended       atomic.Bool // the watch
}

// newBusyRig is to be called in a bubble.
func newBusyRig(t *testing.T) *busyRig {
	t.Helper()
	r := &busyRig{busy: newBusyServer(t), other: newBusyServer(t)}
	servers := map[string]*busyServer{"busy:1": r.busy, "other:1": r.other}
	cfg := &rest.Config{Host: "https://example.com", TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.busy.server.Certificate().Raw}),
	}}
	var err error
	r.endpoints, err = newDialedEndpoints(cfg, []string{"busy:1", "other:1"}, func(ctx context.Context, _, address string) (net.Conn, error) {
		return servers[address].dial(ctx)
	}, proxytest.DiscardLog())
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go r.endpoints.Run(ctx, func([]version.Info) {})
	synctest.Wait()

	r.set(1, endpointNotReady) // for a moment, so that the watch is with the first
	client, err := rest.HTTPClientFor(&rest.Config{Host: cfg.Host, TLSClientConfig: cfg.TLSClientConfig, Dial: r.endpoints.dialContext})
	expect.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/watch", nil)
	expect.NoError(t, err)
	resp, err := client.Do(req)
	expect.NoError(t, err)
	go func() {
		defer func() { _ = resp.Body.Close() }()
		_, _ = io.Copy(io.Discard, resp.Body)
		r.ended.Store(true)
	}()
	r.set(1, endpointUp)
	return r
}

func (r *busyRig) set(i int, state endpointState) {
	r.endpoints.mu.Lock()
	defer r.endpoints.mu.Unlock()
	r.endpoints.all[i].state = state
}

// want compares what is known of the busy one, and whether its watch is there.
func (r *busyRig) want(t *testing.T, when, state string, connections int64, problem bool) {
	t.Helper()
	synctest.Wait()
	got := r.endpoints.Stats()[0]
	if (got.Version == "") != (state == "unreachable") { // who has connections has a version, which others must not disagree with
		t.Errorf("%s: its version is %q", when, got.Version)
	}
	if got.State != state || got.Connections != connections || (got.Problem != "") != problem || r.ended.Load() != (connections == 0) {
		t.Errorf("%s: %+v, and the watch has ended: %v; want it %s with %d connections", when, got, r.ended.Load(), state, connections)
	}
}

// Times after which checks have said so, whenever they began: by the longest pauses, and a bit
// more.
const (
	longestPause = endpointEvery + endpointEvery/5
	// Of one that is up, two have failed.
	twoFailed = longestPause + endpointTimeout + endpointAgain + endpointTimeout + endpointAgain
	// Of one that is slow, two have failed after the one that is on its way.
	silenced = 3*endpointTimeout + 2*longestPause + endpointAgain
	// One that is slow was checked again, after the one that is on its way.
	checked = endpointTimeout + longestPause + endpointTimeout + endpointAgain
)

// What is given up within these is given up for its silence; else this does not compile.
const _ = uint64(endpointPatience - twoFailed - silenced)

// TestEndpointThatIsBusyKeepsItsConnections, until it dies.
func TestEndpointThatIsBusyKeepsItsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBusyRig(t)
		r.want(t, "at first", "up", 1, false)
		r.busy.late.Store(true)
		time.Sleep(twoFailed)
		r.want(t, "two checks failed", "slow", 1, true)
		for i := range 8 {
			conn, err := r.endpoints.dialContext(t.Context(), "tcp", "example.com:443")
			expect.NoError(t, err)
			if r.want(t, fmt.Sprint("connection ", i), "slow", 1, true); t.Failed() {
				t.Fatal("a new connection went to it")
			}
			_ = conn.Close()
		}
		r.busy.late.Store(false)
		time.Sleep(checked)
		r.want(t, "it answers again", "up", 1, false)

		r.busy.late.Store(true)
		time.Sleep(twoFailed)
		r.want(t, "it is late again", "slow", 1, true)
		r.busy.still.Store(true)
		time.Sleep(silenced)
		r.want(t, "and then silent", "unreachable", 0, true)
	})
}

// TestEndpointThatIsBusyForTooLong is given up, though something still comes.
func TestEndpointThatIsBusyForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBusyRig(t)
		r.busy.late.Store(true)
		time.Sleep(endpointPatience - endpointTimeout)
		r.want(t, "not yet", "slow", 1, true)
		time.Sleep(endpointTimeout + longestPause + checked)
		r.want(t, "after a while", "unreachable", 0, true)
	})
}

// TestEndpointThatStandsStill is given up after two checks.
func TestEndpointThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBusyRig(t)
		r.busy.still.Store(true)
		time.Sleep(twoFailed)
		r.want(t, "two checks failed", "unreachable", 0, true)
	})
}

// TestTheOtherHasJustComeBack: of two API servers that are restarted one after the other the second
// may go before the next check has found the first. Whoever connects meanwhile waits for that
// check, and not for long where nobody has come back.
func TestTheOtherHasJustComeBack(t *testing.T) {
	for _, comes := range []bool{true, false} {
		t.Run(fmt.Sprint(comes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBusyRig(t)
				r.busy.gone.Store(true)
				time.Sleep(2 * endpointEvery) // it is known to be gone
				synctest.Wait()
				r.busy.gone.Store(!comes)
				r.other.gone.Store(true)
				begun := time.Now()
				conn, err := r.endpoints.dialContext(t.Context(), "tcp", "example.com:443")
				if (err == nil) != comes {
					t.Fatalf("after %v: %v", time.Since(begun), err)
				}
				if took := time.Since(begun); took > endpointReturn {
					t.Errorf("it took %v", took)
				}
				if err == nil {
					if first := r.endpoints.Stats()[0]; !first.Up() || first.Version == "" {
						t.Errorf("connected to what was not known to be up: %+v", first)
					}
					_ = conn.Close()
				}
			})
		})
	}
}
