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

// TestOddServers compares lists and watches at servers that are odd as those of some control planes are. Both
// sides are asked through hops that make them so. All that listproxy answers from memory elsewhere comes from
// there, too.
func TestOddServers(t *testing.T) {
	harness.Long(t)
	for _, tt := range []struct {
		name    string
		odd     hop.Odd
		server  []string // flags of a kube-apiserver of its own
		noCache bool     // no watch cache, and no streaming lists
	}{
		{name: "revisions are a clock", odd: hop.Odd{Clock: true}},
		{name: "bookmarks are lost and late and revisions fall", odd: hop.Odd{LateBookmarks: true, Falls: true}},
		{name: "initial events have no end and there are unknown fields and headers and few streams", odd: hop.Odd{NoEnd: true, Unknown: true, Streams: 4}},
		{name: "only JSON and HTTP/1.1 and gzip and resets of what is idle", odd: hop.Odd{JSONOnly: true, HTTP1: true, Zipped: true, Idle: 10 * time.Second}},
		{
			name: "no watch cache and no flow headers and no streaming lists", noCache: true,
			server: []string{"--watch-cache=false", "--enable-priority-and-fairness=false", "--feature-gates=WatchList=false"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url := shared.Plane.URL()
			if tt.server != nil {
				server, err := shared.Plane.AddAPIServer(t.Context(), "", tt.server...)
				expect.NoError(t, err)
				t.Cleanup(func() { expect.NoError(t, server.Stop()) })
				url = server.URL()
			}
			c := behind(t, url, tt.odd)
			c.watchList, c.pagesAny = c.watchList && !tt.noCache, tt.noCache
			rng := rand.New(rand.NewPCG(*seed, 9))
			d := newDeck(cluster.Split(rng), c.cluster.Resources)
			c.run(enough(t, c, *duration/3, 50), rng, 12, func(ctx context.Context, g *generator) {
				if w, ok := g.watch(); ok && g.one(2) {
					c.compareWatch(ctx, g, w)
				} else {
					c.list(ctx, g, d)
				}
			})
			finish(t, c.report, 0.5) // on a busy machine
		})
	}
}

// behind returns a comparator of listproxy and a server, both of which are asked through hops, while objects
// change.
func behind(t *testing.T, url string, odd hop.Odd) *comparator {
	t.Helper()
	plane := shared.Plane
	admin := plane.RESTConfig(controlplane.Admin)
	direct, own := hop.Run(t, url, plane.CA(), odd.OfCallers()), hop.Run(t, url, plane.CA(), odd)
	resources := slices.DeleteFunc(slices.Clone(shared.Resources), func(r cluster.Resource) bool {
		return !slices.Contains([]string{"pods", "configmaps", "nodes", "leases", "secrets", "gadgets"}, r.Resource)
	})
	for i := range resources {
		resources[i].JSONOnly = odd.JSONOnly
	}
	at, err := shared.At(t.Context(), direct.RESTConfig(admin), resources)
	expect.NoError(t, err)
	begun := at.Begun()
	p := harness.RunProxy(t, harness.ProxyOptions{Upstream: own.RESTConfig(plane.RESTConfig(controlplane.Feed)), Args: proxyArgs(at)})
	expect.NoError(t, at.WriteThrough(p.RESTConfig(admin)))
	churn(t, at, 20)
	return comparing(t, at, begun, newSide("kube-apiserver", direct.URL(), direct.CA()), p)
}
