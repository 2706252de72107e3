package differential_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
)

const (
	// patience ends the wait for something that must come.
	patience = 5 * time.Minute
	// bound is how old an Any of healthy may be.
	bound = 10 * time.Second
)

var (
	duration    = flag.Duration("differential.duration", 15*time.Second, "how long the comparison under churn takes")
	comparisons = flag.Int("differential.comparisons", 0, "how many comparisons are made under churn, however long they take; 0: as many as come in -differential.duration")
	seed        = flag.Uint64("differential.seed", 0, "of everything random; 0 chooses one")
	share       = flag.Float64("differential.share", 0.8, "how much of what listproxy is to answer from memory must come from there; what it is behind for does not count")
	// Off by default in 1.33 and before 1.32, and an operator may turn it off.
	watchList = flag.Bool("differential.watchlist", true, "whether the API server has streaming lists; without them states are loaded page by page")
)

// shared serves all tests, and healthy is a listproxy in front of it that nothing is wrong with.
var (
	shared  *cluster.Cluster
	healthy *harness.Proxy
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{SetUp: setUp})
}

func setUp(s *harness.Suite) error {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	plane, err := s.ControlPlane(controlplane.Options{
		APIServerArgs: []string{fmt.Sprintf("--feature-gates=WatchList=%t", *watchList)},
	})
	if err != nil {
		return err
	}
	_, _ = fmt.Printf("kube-apiserver %s -differential.watchlist=%t -differential.seed=%d\n", plane.Version(), *watchList, *seed)
	if shared, err = cluster.New(s.Context(), plane, *seed); err != nil {
		return err
	}
	healthy, err = s.Proxy(harness.ProxyOptions{
		Upstream: plane.RESTConfig(controlplane.Feed),
		Args:     []string{"--eager", shared.Eager(), "--client-ca-file", plane.CAPath(), "--staleness-bound", bound.String(), "--consistent-lists=always"},
	})
	if err != nil {
		return err
	}
	// Revisions from before it started are not its to know.
	shared.Ledger.Forget()
	return introduce(healthy)
}

// startBehind runs another listproxy behind a hop until the test ends.
func startBehind(t *testing.T, h *hop.Hop, eager string, args ...string) *differential.Side {
	t.Helper()
	upstream := shared.Plane.RESTConfig(controlplane.Feed)
	upstream.Host, upstream.CAData = h.URL(), h.CA()
	p := harness.RunProxy(t, harness.ProxyOptions{Upstream: upstream, Args: append(args, "--eager", eager, "--client-ca-file", shared.Plane.CAPath())})
	if err := introduce(p); err != nil {
		t.Fatal(err)
	}
	return side(p)
}

// introduce has all who ask known to a listproxy, as if each had sent something else than a list
// before.
func introduce(p *harness.Proxy) error {
	var all []*rest.Config
	for _, user := range shared.Users() {
		all = append(all, &rest.Config{BearerToken: user.Token})
	}
	return p.Introduce(all...)
}

// side is how a listproxy is asked.
func side(p *harness.Proxy) *differential.Side {
	return differential.NewSide("listproxy", p.URL(), p.CA())
}

// finish prints a report and demands that nothing differs.
func finish(t *testing.T, report *differential.Report) {
	t.Helper()
	t.Log(report)
	if len(report.Kinds()) > 0 {
		t.Error("there are differences")
	}
}

// churn changes objects until the test ends.
func churn(t *testing.T, perSecond int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		shared.Churn(ctx, *seed, 4, perSecond)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// resource returns a resource of the cluster.
func resource(t *testing.T, name string) cluster.Resource {
	t.Helper()
	for _, r := range shared.Resources {
		if r.Resource == name {
			return r
		}
	}
	t.Fatalf("no resource %q", name)
	return cluster.Resource{}
}
