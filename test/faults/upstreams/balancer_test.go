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

// TestBehindOneAddress: a balancer before both API servers spreads connections, and resets them now
// and then. listproxy knows its address only.
func TestBehindOneAddress(t *testing.T) {
	harness.Long(t)
	r := takeRig(t)
	before, err := hop.StartBalancer()
	r.must(err)
	defer before.Close()
	for _, s := range []*controlplane.APIServer{one, two} {
		before.Add(address(s))
	}
	r.start("https://" + before.Address())
	quiet := r.load()
	defer quiet()

	r.part("nothing", noticedAtOnce, func() {})
	stop := r.resetting(before, resetEvery)
	defer stop()
	r.part("connections reset", noticedAtOnce, func() { poll.Pause(t.Context(), 10*resetEvery) })
	killed := []*controlplane.APIServer{one, two}
	if !*all {
		killed = killed[:1]
	}
	for _, s := range killed {
		r.part("and killed, and started again", noticedAtOnce, func() {
			r.must(s.Kill())
			// As balancers do that look at /readyz: before it is ready kube-apiserver does not know
			// all rights, and says 403.
			before.Remove(address(s))
			r.startAPIServer(s)
			before.Add(address(s))
		})
	}
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
