package upstream

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/authntest"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestSharedDial: requests that wait for a connection wait for one dial, and dial themselves when that
// does not help them.
func TestSharedDial(t *testing.T) {
	for name, test := range map[string]sharedDialTest{
		"a dial is for all":   {takes: dialPatience / 2, dials: 1, within: dialPatience / 2},
		"a dial fails":        {takes: dialPatience / 2, fails: true, failed: 1, dials: 2, within: dialPatience / 2},
		"a dial hangs":        {takes: time.Minute, dials: dialers, within: dialPatience},
		"who dials goes away": {takes: time.Minute, leaves: true, failed: 1, dials: 2},
		"it speaks HTTP/1.1":  {takes: dialPatience / 2, http1: true, dials: dialers, within: dialPatience / 2},
		"one has no room for all": {
			requests: 1000, streams: 100, takes: dialPatience / 2, dials: 10, within: dialPatience/2 + 9*dialSettle,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, test.run)
		})
	}
}

// dialers is how many requests wait for a connection at a time, where a test does not say it.
const dialers = 20

// sharedDialTest says how the first dial goes, and what is to come of it.
type sharedDialTest struct {
	requests int32 // 0: dialers
	streams  int   // how many a connection has room for; 0: more than requests
	http1    bool
	takes    time.Duration
	fails    bool
	leaves   bool // the request that dials

	failed, dials int32
	within        time.Duration // all are answered or have failed
}

func (test sharedDialTest) run(t *testing.T) {
	all := make(chan struct{}) // closed when all requests have come: none waits for another's answer
	var come, failed, dials atomic.Int32
	requests := cmp.Or(test.requests, dialers)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if come.Add(1) == requests-test.failed {
			close(all)
		}
		select {
		case <-all:
		case <-time.After(time.Hour):
		}
	}))
	server.EnableHTTP2 = !test.http1
	server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: test.streams}
	pipes := proxytest.StartInPipes(t, server)
	cfg := proxytest.UpstreamServer{Server: server}.Config()
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			select {
			case <-time.After(test.takes):
			case <-ctx.Done():
			}
			if test.fails || ctx.Err() != nil {
				return nil, errors.New("the first dial fails")
			}
		}
		return pipes.Dial(ctx, network, address)
	}
	up, err := New(cfg)
	expect.NoError(t, err)
	known := authntest.Identify(authntest.New(t), "Bearer known")
	up.Answered(known, false, http.MethodGet, http.StatusOK)

	began, done := time.Now(), make(chan struct{})
	send := func(ctx context.Context) {
		defer func() { done <- struct{}{} }()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
		expect.NoError(t, err)
		res, err := up.RoundTripper(known, false).RoundTrip(r)
		if err != nil {
			failed.Add(1)
			return
		}
		_ = res.Body.Close()
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	go send(ctx)
	synctest.Wait() // it dials
	for range requests - 1 {
		go send(t.Context())
	}
	synctest.Wait()
	if test.leaves {
		leave()
	}
	for range requests {
		<-done
	}
	if took := time.Since(began); dials.Load() != test.dials || failed.Load() != test.failed || took != test.within {
		t.Errorf("%d dials, %d failed, in %v; want %d, %d, %v", dials.Load(), failed.Load(), took, test.dials, test.failed, test.within)
	}
	up.current.Load().closeIdle()
}
