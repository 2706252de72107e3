package differential

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/harness"
)

// HealthyBound is how old an Any of [Suite.Healthy] may be.
const HealthyBound = 10 * time.Second

// Suite is what a folder of comparisons starts once for all its tests: a control plane with a
// cluster in it, and a listproxy in front of it that nothing is wrong with.
type Suite struct {
	name string
	// Flags, whose names begin with that of the suite.
	Duration  *time.Duration
	Seed      *uint64
	Share     *float64
	WatchList *bool

	*cluster.Cluster
	Healthy *harness.Proxy
	// Begun are revisions from before it started.
	Begun map[schema.GroupResource]uint64
}

// NewSuite adds the flags of a suite. duration is how long the comparison under churn takes.
func NewSuite(name string, duration time.Duration) *Suite {
	return &Suite{
		name:     name,
		Duration: flag.Duration(name+".duration", duration, "how long the comparison under churn takes"),
		Seed:     flag.Uint64(name+".seed", 0, "of everything random; 0 chooses one"),
		Share:    flag.Float64(name+".share", 0.8, "how much of what listproxy is to answer from memory must come from there; what it is behind for does not count"),
		// Off by default in 1.33 and before 1.32, and an operator may turn it off.
		WatchList: flag.Bool(name+".watchlist", true, "whether the API server has streaming lists; without them states are loaded page by page"),
		Begun:     map[schema.GroupResource]uint64{},
	}
}

// SetUp starts it all; args are more flags of listproxy.
func (s *Suite) SetUp(h *harness.Suite, args ...string) error {
	if *s.Seed == 0 {
		*s.Seed = rand.Uint64()
	}
	plane, err := h.ControlPlane(controlplane.Options{
		APIServerArgs: []string{
			fmt.Sprintf("--feature-gates=WatchList=%t", *s.WatchList),
			"--strict-transport-security-directives=max-age=3600", // a header of every answer
		},
	})
	if err != nil {
		return err
	}
	_, _ = fmt.Printf("kube-apiserver %s -%s.watchlist=%t -%s.seed=%d\n", plane.Version(), s.name, *s.WatchList, s.name, *s.Seed)
	if s.Cluster, err = cluster.New(h.Context(), plane, *s.Seed); err != nil {
		return err
	}
	s.Healthy, err = h.Proxy(harness.ProxyOptions{
		Upstream: plane.RESTConfig(controlplane.Feed),
		Args: append([]string{
			"--eager", s.Eager(), "--client-ca-file", plane.CAPath(), "--staleness-bound", HealthyBound.String(), "--consistent-lists=always",
		}, args...),
	})
	if err != nil {
		return err
	}
	if err := s.WriteThrough(s.Healthy.RESTConfig(plane.RESTConfig(controlplane.Admin))); err != nil {
		return err
	}
	for _, r := range s.Resources {
		s.Begun[r.GroupResource()] = s.Newest(r)
	}
	// Revisions from before it started are not its to know.
	s.Ledger.Forget()
	return nil
}

// SideOf is how a listproxy is asked.
func SideOf(p *harness.Proxy) *Side { return NewSide("listproxy", p.URL(), p.CA()) }

// ChangeUntilEnd changes objects until the test ends, and does more beside that.
func (s *Suite) ChangeUntilEnd(t *testing.T, perSecond int, more ...func(ctx context.Context, seed uint64)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { s.Churn(ctx, *s.Seed, 4, perSecond) })
	for _, change := range more {
		all.Go(func() { change(ctx, *s.Seed) })
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})
}
