package differential

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
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
	share    = flag.Float64("differential.share", 0.8, "how much of what listproxy is to answer from memory must come from there; what it is behind for does not count")
	duration = flag.Duration("differential.duration", 15*time.Second, "how long the comparison of lists under churn takes, and that of watches")
	seed     = flag.Uint64("differential.seed", 0, "of everything random; 0 chooses one")
	// Off by default in 1.33 and before 1.32, and an operator may turn it off.
	watchList = flag.Bool("differential.watchlist", true, "whether the API server has streaming lists; without them states are loaded page by page")
)

// What all tests share.
var (
	shared *cluster.Cluster
	proxy  *harness.Proxy
	// sharded reports whether the API server answers sharded lists and watches.
	sharded bool
	// begun are revisions of resources that listproxy knew from the start.
	begun map[schema.GroupResource]uint64
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
	_, release, err := binaries.Of(s.Context(), harness.Log, os.Getenv(controlplane.VersionEnv))
	if err != nil {
		return err
	}
	// Alpha, so make test compares without.
	sharded = !testing.Short() && version.MustParseGeneric(release).AtLeast(version.MustParseGeneric("1.36"))
	if sharded {
		args = append(args, "--feature-gates=ShardedListAndWatch=true")
	}
	plane, err := s.ControlPlane(controlplane.Options{APIServerArgs: args})
	if err != nil {
		return err
	}
	_, _ = fmt.Printf("kube-apiserver %s -differential.watchlist=%t -differential.seed=%d\n", plane.Version(), *watchList, *seed)
	if shared, err = cluster.New(s.Context(), plane, *seed); err != nil {
		return err
	}
	proxy, err = s.Proxy(harness.ProxyOptions{
		Upstream: plane.RESTConfig(controlplane.Feed),
		Args:     proxyArgs(shared),
	})
	if err != nil {
		return err
	}
	if err := shared.WriteThrough(proxy.RESTConfig(plane.RESTConfig(controlplane.Admin))); err != nil {
		return err
	}
	begun = shared.Begun()
	return nil
}

// proxyArgs are the flags of each listproxy.
func proxyArgs(of *cluster.Cluster) []string {
	return []string{
		"--eager", of.Eager(), "--client-ca-file", of.Plane.CAPath(), "--staleness-bound", bound.String(), "--consistent-lists=always", "--watches",
	}
}

// newComparator returns one that has the listproxy of all tests keep all that it may keep.
func newComparator(t *testing.T) *comparator {
	t.Helper()
	c := comparing(t, shared, begun, newSide("kube-apiserver", shared.Plane.URL(), shared.Plane.CA()), proxy)
	c.sharded = sharded
	return c
}

// comparing returns a comparator that has a listproxy keep all that it may keep.
func comparing(t *testing.T, of *cluster.Cluster, begun map[schema.GroupResource]uint64, direct *side, p *harness.Proxy) *comparator {
	t.Helper()
	c := &comparator{
		cluster: of, begun: begun, direct: direct, proxy: newSide("listproxy", p.URL(), p.CA()), report: newReport(), watchList: *watchList,
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect.NoError(t, c.warm(ctx))
	return c
}

// churn changes objects until the test ends.
func churn(t *testing.T, of *cluster.Cluster, perSecond int, spared ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		of.Churn(ctx, *seed, perSecond, spared...)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// enough returns a context that ends after some time, but not before there were so many comparisons. The test
// fails if they do not come.
func enough(t *testing.T, c *comparator, after time.Duration, least int) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		clock.Sleep(ctx, after)
		if !poll.Came(t, patience, func() bool { return c.report.comparisons() >= least }) && ctx.Err() == nil {
			t.Errorf("%d comparisons, at least %d should be made", c.report.comparisons(), least)
		}
	}()
	return ctx
}

// finish prints the report, and demands that nothing differs, and that of what listproxy is to answer from
// memory enough came from there.
func finish(t *testing.T, r *report, share float64) {
	t.Helper()
	t.Log(r)
	if len(r.kinds) > 0 {
		t.Error("there are differences")
	}
	if got := r.share(); got < share {
		t.Errorf("%.1f%% of what can be answered came from memory, at least %.1f%% should", 100*got, 100*share)
	}
}

// resource returns a resource by its name, in its newest version.
func resource(t *testing.T, name string) cluster.Resource {
	t.Helper()
	all := cluster.Resources()
	i := slices.IndexFunc(all, func(r cluster.Resource) bool { return r.Resource == name })
	if i < 0 {
		t.Fatalf("no resource %q", name)
	}
	return all[i]
}

// TestFirstState: what the other tests compare was loaded by streaming lists where the API server
// has them, and page by page where it has not.
func TestFirstState(t *testing.T) {
	want := 0
	for _, r := range shared.Resources {
		if r.Cached && !*watchList {
			want++
		}
	}
	// Loads after a restart of the API server say it again.
	if got := strings.Count(proxy.Log(), "loaded page by page"); got < want || want == 0 && got > 0 {
		t.Errorf("%d of %d collections were loaded page by page", got, want)
	}
}
