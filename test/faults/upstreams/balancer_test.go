package upstreams

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// resetEvery is how often a connection through the balancer is reset, on average.
const resetEvery = 300 * time.Millisecond

// behind starts a balancer before API servers, and returns it with its URL.
func (r *rig) behind(servers ...*controlplane.APIServer) (*hop.Balancer, string) {
	r.Helper()
	before, err := hop.StartBalancer()
	r.must(err)
	r.Cleanup(before.Close)
	for _, s := range servers {
		before.Add(address(s))
	}
	return before, "https://" + before.Address()
}

// TestBehindOneAddress: a balancer before both API servers spreads connections, and resets them now
// and then. Meanwhile each is killed, one stands still, and both are restarted in order. Callers'
// rights are not asked for again, which would wait where one stands still as well: then nobody would
// be given anything, not even what is too old.
func TestBehindOneAddress(t *testing.T) {
	harness.Long(t)
	r := takeRig(t)
	before, url := r.behind(one, two)
	r.start(url, "--review-ttl", "1h")
	quiet := r.load()
	defer quiet()

	r.part("nothing", noticedAtOnce, func() {})
	stop := r.resetting(before, resetEvery)
	defer stop()
	r.part("connections reset", noticedAtOnce, func() { poll.Pause(t.Context(), 10*resetEvery) })
	again := func(s *controlplane.APIServer, end func() error) {
		// As balancers do that look at /readyz: before it is ready kube-apiserver does not know
		// all rights, and says 403.
		before.Remove(address(s))
		r.must(end())
		r.startAPIServer(s)
		before.Add(address(s))
	}
	broken := []*controlplane.APIServer{one, two}
	if !*all {
		broken = broken[:1]
	}
	for _, s := range broken {
		r.part("and killed, and started again", noticedAtOnce, func() { again(s, s.Kill) })
		r.part("and paused", noticedLate, func() {
			r.must(s.Pause())
			before.Remove(address(s))
		})
		r.part("and resumed", noticedLate, func() {
			r.must(s.Resume())
			before.Add(address(s))
		})
	}
	r.part("and restarted in order, one after the other", noticedAtOnce, func() {
		for _, s := range []*controlplane.APIServer{one, two} {
			again(s, s.Stop)
		}
	})
	stop()
	r.part("no more", noticedAtOnce, func() {})
}

// resetting resets a connection through a balancer now and then, until the function that it returns
// is called.
func (r *rig) resetting(b *hop.Balancer, every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	var running sync.WaitGroup
	resets := 0
	running.Go(func() {
		for poll.Pause(ctx, rand.N(2*every)) {
			if b.Reset() {
				resets++
			}
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		running.Wait()
		r.Logf("%d connections were reset", resets)
		if resets == 0 {
			r.Error("no connection was reset")
		}
	})
}

func address(s *controlplane.APIServer) string { return strings.TrimPrefix(s.URL(), "https://") }
