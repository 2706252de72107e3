package watches

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/harness"
)

const (
	// patience ends the wait for something that must come.
	patience = time.Minute
	// bound is how old an Any of healthy may be.
	bound = 10 * time.Second
)

var (
	duration  = flag.Duration("watches.duration", 10*time.Second, "how long the comparison under churn takes")
	seed      = flag.Uint64("watches.seed", 0, "of everything random; 0 chooses one")
	watchList = flag.Bool("watches.watchlist", true, "whether the API server has streaming lists")
	share     = flag.Float64("watches.share", 0.8, "how much of what listproxy is to answer from memory must come from there")
)

// shared serves all tests, and healthy is a listproxy in front of it that nothing is wrong with.
var (
	shared  *cluster.Cluster
	healthy *harness.Proxy
	// begun are revisions from before it started.
	begun = map[schema.GroupResource]uint64{}
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
	_, _ = fmt.Printf("kube-apiserver %s -watches.watchlist=%t -watches.seed=%d\n", plane.Version(), *watchList, *seed)
	if shared, err = cluster.New(s.Context(), plane, *seed); err != nil {
		return err
	}
	args := []string{
		"--eager", shared.Eager(), "--client-ca-file", plane.CAPath(), "--staleness-bound", bound.String(), "--consistent-lists=always", "--watches",
	}
	healthy, err = s.Proxy(harness.ProxyOptions{Upstream: plane.RESTConfig(controlplane.Feed), Args: args})
	if err != nil {
		return err
	}
	for _, r := range shared.Resources {
		begun[r.GroupResource()] = shared.Newest(r)
	}
	// Revisions from before it started are not its to know.
	shared.Ledger.Forget()
	var all []*rest.Config
	for _, user := range shared.Users() {
		all = append(all, &rest.Config{BearerToken: user.Token})
	}
	return healthy.Introduce(all...)
}

// side is how healthy is asked.
func side() *differential.Side { return differential.NewSide("listproxy", healthy.URL(), healthy.CA()) }

// churn changes objects until the test ends.
func churn(t *testing.T, perSecond int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() {
		shared.Churn(ctx, *seed, 4, perSecond)
		done <- struct{}{}
	}()
	go func() {
		shared.Turnover(ctx, *seed)
		done <- struct{}{}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		<-done
	})
}
