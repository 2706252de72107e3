package differential

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

var (
	share    = flag.Float64("differential.share", 0.8, "the least share of the answerable questions that must be answered from memory; a question that comes before memory has its revision does not count")
	duration = flag.Duration("differential.duration", 15*time.Second, "how long the comparison of lists under churn takes, and that of watches")
	seed     = flag.Uint64("differential.seed", 0, "of everything random; 0 chooses one")
	// kube-apiserver 1.33 and those before 1.32 have none by default, and an operator may turn them off.
	watchList = flag.Bool("differential.watchlist", true, "whether the API server has streaming lists; without them states are loaded page by page")
)

// What all tests share.
var (
	shared      *cluster.Cluster
	sharedProxy *harness.Proxy
	// hasShards reports whether the API server answers sharded lists and watches.
	hasShards bool
	// revisionsBefore has, for each resource, a revision from before listproxy started. No state in memory is older.
	revisionsBefore map[schema.GroupResource]uint64
)

func TestMain(m *testing.M) { harness.Main(m, harness.Options{SetUp: setUp}) }

func setUp(s *harness.Suite) error {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	args := []string{
		fmt.Sprintf("--feature-gates=WatchList=%t", *watchList),
		"--strict-transport-security-directives=max-age=3600", // a header of every answer
	}
	_, release, err := binaries.ControlPlane(s.Context(), harness.Log, os.Getenv(controlplane.VersionEnv))
	if err != nil {
		return err
	}
	// The feature is alpha, so make test (-short) compares without it.
	hasShards = !testing.Short() && version.MustParseGeneric(release).AtLeast(version.MustParseGeneric("1.36"))
	if hasShards {
		args = append(args, "--feature-gates=ShardedListAndWatch=true")
	}
	plane, err := s.ControlPlane(controlplane.Options{APIServerArgs: args})
	if err != nil {
		return err
	}
	_, _ = fmt.Printf("kube-apiserver %s -differential.watchlist=%t -differential.seed=%d\n", plane.Version(), *watchList, *seed)
	shared, err = cluster.New(s.Context(), plane, *seed)
	if err != nil {
		return err
	}
	sharedProxy, err = s.Proxy(harness.ProxyOptions{
		Upstream: plane.RESTConfig(controlplane.Feed),
		Args:     proxyArgs(shared),
	})
	if err != nil {
		return err
	}
	if err := shared.WriteThrough(sharedProxy.RESTConfig(plane.RESTConfig(controlplane.Admin))); err != nil {
		return err
	}
	revisionsBefore = shared.ForgetWrites()
	return nil
}

// proxyArgs returns the flags of each listproxy.
func proxyArgs(c *cluster.Cluster) []string {
	return []string{
		"--eager", c.Eager(), "--client-ca-file", c.Plane.CAPath(), "--staleness-bound", bound.String(), "--consistent-lists=always", "--watches",
	}
}

// newComparator returns a comparator of the listproxy that all tests share, with every resource in memory.
func newComparator(t *testing.T) *comparator {
	t.Helper()
	direct := newSide("kube-apiserver", shared.Plane.URL(), shared.Plane.CA())
	c := newComparatorOf(t, sharedProxy, direct, shared, revisionsBefore)
	c.hasShards = hasShards
	return c
}

// newComparatorOf returns a comparator of the listproxy p and of kube-apiserver (direct), when p has every resource of contents
// in memory. before is [comparator.revisionsBefore].
func newComparatorOf(
	t *testing.T, p *harness.Proxy, direct *side, contents *cluster.Cluster, before map[schema.GroupResource]uint64,
) *comparator {
	t.Helper()
	c := &comparator{
		cluster: contents, revisionsBefore: before, direct: direct,
		proxy: newSide("listproxy", p.URL(), p.CA()), report: newReport(), watchList: *watchList,
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect.NoError(t, c.warmUp(ctx))
	return c
}

// churn runs [cluster.Cluster.Churn] until the test ends.
func churn(t *testing.T, c *cluster.Cluster, perSecond int, spared ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var churning sync.WaitGroup
	churning.Go(func() { c.Churn(ctx, *seed, perSecond, spared...) })
	t.Cleanup(func() {
		cancel()
		churning.Wait()
	})
}

// untilEnough returns a context that ends when minDuration is over and c has made minComparisons: at the later of the two. If
// the comparisons take longer than patience, the test fails.
func untilEnough(t *testing.T, c *comparator, minDuration time.Duration, minComparisons int) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		clock.Sleep(ctx, minDuration)
		if !poll.Await(t, patience, func() bool { return c.report.comparisons() >= minComparisons }) && ctx.Err() == nil {
			t.Errorf("%d comparisons, want at least %d", c.report.comparisons(), minComparisons)
		}
	}()
	return ctx
}

// finish logs the report, and requires that nothing differs and that at least minShare of the answerable questions were
// answered from memory.
func finish(t *testing.T, r *report, minShare float64) {
	t.Helper()
	t.Log(r)
	if len(r.kinds) > 0 {
		t.Errorf("%d kinds of differences, see the report above", len(r.kinds))
	}
	if got := r.share(); got < minShare {
		t.Errorf("%.1f%% of the answerable questions were answered from memory, want %.1f%%", 100*got, 100*minShare)
	}
}

// resource returns the resource with this name, such as "pods", in its newest version.
func resource(t *testing.T, name string) cluster.Resource {
	t.Helper()
	all := cluster.Resources()
	i := slices.IndexFunc(all, func(r cluster.Resource) bool { return r.Resource == name })
	if i < 0 {
		t.Fatalf("no resource %q", name)
	}
	return all[i]
}
