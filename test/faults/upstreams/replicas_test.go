package upstreams

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// separate returns a client that makes a connection for each request.
func (r *rig) separate() *ask.Client {
	cfg := r.through()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return closing{next} })
	cfg.NextProtos = []string{"http/1.1"}
	return ask.MustNew(r, cfg, requestTimeout)
}

type closing struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (c closing) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	q.Close = true
	return c.next.RoundTrip(q)
}

const (
	// noticed is how late a balancer hears that a replica is not ready any more.
	noticed = 1500 * time.Millisecond
	// delay is for how long replicas go on after SIGTERM: longer than that.
	delay = 15 * time.Second
)

// TestRolled: all replicas are replaced under load, one by one. SIGTERM comes first, and the
// balancer, which looks at /readyz, hears of it late. No request is lost: of clients that keep
// their connections, with HTTP/2 and HTTP/1.1, and of one that makes one for each request; reads
// and writes.
func TestRolled(t *testing.T) {
	harness.Long(t)
	r := takeRig(t)
	start := func() *harness.Proxy {
		return r.start(plane.URL(), "--shutdown-delay-duration", delay.String(), "--shutdown-timeout", "1m")
	}
	var old []*harness.Proxy
	for range 2 {
		old = append(old, start())
	}
	old1 := r.through()
	old1.NextProtos = []string{"http/1.1"}
	kept := ask.MustNew(r, old1, requestTimeout)
	r.clients = append(r.clients, kept, r.separate())
	quiet := r.load()
	defer quiet()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel()
	r.gaps.expect("writes")
	for _, c := range r.clients {
		writing.Go(func() {
			for poll.Pause(ctx, 2*askEvery) {
				asked := time.Now()
				a, err := r.Touch(ctx, c, load.ConfigMaps, r.ns, load.NameOf(1))
				if ctx.Err() == nil && a.Code != http.StatusNotFound { // it may be deleted just now
					r.heard("writes", asked, a, err)
				}
			}
		})
	}
	r.part("nothing", noticedAtOnce, func() {})
	lost := r.part("rolled", noticedAtOnce, func() {
		for _, p := range old {
			start()
			ended := make(chan error, 1)
			go func() { ended <- r.retire(p) }()
			r.must(poll.Retry(ctx, "the balancer to hear of it", func() error {
				if ready, said := p.Ready(ctx); ready {
					return errStillReady(said)
				}
				return nil
			}))
			poll.Pause(ctx, noticed)
			r.proxies.Balancer.Remove(p.Address())
			r.must(<-ended)
		}
	}).lost
	if lost != 0 {
		t.Errorf("%d requests were lost", lost)
	}
	cancel()
	writing.Wait()
}

type errStillReady string

func (e errStillReady) Error() string { return "still ready: " + strings.TrimSpace(string(e)) }

// retire stops a replica, which the end of the test need not do then.
func (r *rig) retire(p *harness.Proxy) error {
	r.proxies.Remove(p)
	return p.Stop()
}
