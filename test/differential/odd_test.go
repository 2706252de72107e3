package differential

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
)

// TestOddServers: in front of API servers with unusual but legal behaviour, listproxy answers lists and watches as these
// servers do. At least half of the questions that memory should answer are answered from memory. The servers are the real
// kube-apiserver behind a hop, which changes what passes, or a kube-apiserver with other flags.
func TestOddServers(t *testing.T) {
	harness.Long(t)
	for _, tt := range []struct {
		name        string
		odd         hop.Odd
		serverFlags []string // of another kube-apiserver; nil: the shared one
		noCache     bool     // whether these flags turn off the watch cache and streaming lists
	}{
		{name: "revisions are a clock", odd: hop.Odd{ClockRevisions: true}},
		{name: "lost and late bookmarks, and revisions that fall", odd: hop.Odd{LateBookmarks: true, RevisionFalls: true}},
		{
			name: "no end of the initial events, unknown fields and headers, and few streams",
			odd:  hop.Odd{NoInitialEnd: true, UnknownFields: true, Streams: 4},
		},
		{
			name: "only JSON, HTTP/1.1 and gzip, and resets of idle connections",
			odd:  hop.Odd{JSONOnly: true, HTTP1: true, AlwaysGzip: true, IdleTimeout: 10 * time.Second},
		},
		{
			name: "no watch cache, flow control and streaming lists", noCache: true,
			serverFlags: []string{"--watch-cache=false", "--enable-priority-and-fairness=false", "--feature-gates=WatchList=false"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url := shared.Plane.URL()
			if tt.serverFlags != nil {
				server, err := shared.Plane.AddAPIServer(t.Context(), "", tt.serverFlags...)
				expect.NoError(t, err)
				t.Cleanup(func() { expect.NoError(t, server.Stop()) })
				url = server.URL()
			}
			c := newOddComparator(t, url, tt.odd)
			if tt.noCache {
				c.obeysLimitAtZero = true
				c.watchList = false
			}
			rng := rand.New(rand.NewPCG(*seed, oddStream))
			d := newDeck(cluster.Split(rng), c.cluster.Resources)
			const askers, minComparisons = 12, 50
			enough := untilEnough(t, c, *duration/3, minComparisons) // a third, since the cases share the machine
			c.runWorkers(enough, rng, askers, func(ctx context.Context, g *generator) {
				if w, ok := g.randomWatch(); ok && g.oneIn(2) {
					c.compareWatch(ctx, g, w)
				} else {
					c.compareNextList(ctx, g, d)
				}
			})
			const minShare = 0.5 // on a busy machine
			finish(t, c.report, minShare)
		})
	}
}

// newOddComparator returns a comparator of a listproxy and the API server at url, both reached through odd hops, and starts a
// churn through them.
func newOddComparator(t *testing.T, url string, odd hop.Odd) *comparator {
	t.Helper()
	plane := shared.Plane
	admin := plane.RESTConfig(controlplane.Admin)
	// Callers and listproxy reach the server through hops of their own. The callers' hop has only the oddities that callers
	// see.
	directHop := hop.Run(t, url, plane.CA(), odd.OfCallers())
	upstreamHop := hop.Run(t, url, plane.CA(), odd)

	resources := slices.DeleteFunc(slices.Clone(shared.Resources), func(r cluster.Resource) bool {
		return !slices.Contains([]string{"pods", "configmaps", "nodes", "leases", "secrets", "gadgets"}, r.Resource)
	})
	for i := range resources {
		resources[i].JSONOnly = odd.JSONOnly
	}
	seen, err := shared.SeenThrough(t.Context(), directHop.RESTConfig(admin), resources)
	expect.NoError(t, err)
	before := seen.ForgetWrites()

	p := harness.RunProxy(t, harness.ProxyOptions{Upstream: upstreamHop.RESTConfig(plane.RESTConfig(controlplane.Feed)), Args: proxyArgs(seen)})
	expect.NoError(t, seen.WriteThrough(p.RESTConfig(admin)))
	const writesPerSecond = 20
	churn(t, seen, writesPerSecond)
	return newComparatorOf(t, p, newSide("kube-apiserver", directHop.URL(), directHop.CA()), seen, before)
}
