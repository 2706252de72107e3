package limits

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// watchesPerClient is how many watches share a connection here.
const watchesPerClient = 100

// TestForwardedWatches: so many are open at the same time, all of them hear an event, and what each
// costs.
func TestForwardedWatches(t *testing.T) {
	harness.Long(t)
	n := 1000
	r := newRig(t)
	tell := make(chan struct{})
	r.hop.OnRequest(func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Query().Get("labelSelector") != "limits" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-tell:
			_, _ = w.Write([]byte(`{"type":"BOOKMARK"}` + "\n"))
			_ = http.NewResponseController(w).Flush()
			<-req.Context().Done()
		case <-req.Context().Done():
		}
		return true
	})
	r.must(warm(r))
	before := r.sample()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	var open, told atomic.Int64
	begun := time.Now()
	for i := 0; i < n; i += watchesPerClient {
		// Not a storm: that is another limit.
		r.until("the watches before are open", func() bool { return int(open.Load()) > i-5*watchesPerClient })
		cfg := r.proxy.RESTConfig(plane.RESTConfig(controlplane.Admin))
		// Of its own: client-go shares connections otherwise.
		cfg.Proxy = http.ProxyFromEnvironment
		client := client{ask.MustNew(r, cfg, 0)}
		for range min(watchesPerClient, n-i) {
			all.Go(func() {
				resp, err := client.Open(ctx, http.MethodGet, "/api/v1/configmaps?labelSelector=limits&watch=true", nil)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				defer resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Error(resp.Status)
					return
				}
				open.Add(1)
				if k, err := resp.Body.Read(make([]byte, 64)); k == 0 {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				told.Add(1)
				<-ctx.Done()
			})
		}
	}
	r.until("all watches are open", func() bool { return open.Load() == int64(n) })
	opened := time.Since(begun)
	after := r.sample()
	begun = time.Now()
	close(tell)
	r.until("all watches have heard", func() bool { return told.Load() == int64(n) })
	r.say("%d forwarded watches: open after %.1f s; each %.1f KiB resident, %.2f goroutines, %.3f file descriptors (%d on a client's connection); all heard an event within %.1f s",
		n, opened.Seconds(), (after.RSS-before.RSS)/1024/float64(n), (after.Goroutines-before.Goroutines)/float64(n),
		(after.FDs-before.FDs)/float64(n), watchesPerClient, time.Since(begun).Seconds())
	if each := (after.RSS - before.RSS) / float64(n); each > 256<<10 {
		t.Errorf("a watch costs %.0f bytes", each)
	}
}

// warm lets what is made once be made.
func warm(r *rig) error {
	_, err := r.via.await(r.Context(), "/api/v1/configmaps?resourceVersion=0")
	return err
}

// until waits for what must come.
func (r *rig) until(what string, is func() bool) {
	r.Helper()
	came := false
	poll.Until(r, patience, what, func() bool {
		came = is()
		return came || r.Failed()
	})
	if !came {
		r.Fatal("not: " + what)
	}
}
