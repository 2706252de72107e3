package upstreams

import (
	"flag"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
)

const (
	older = "1.35.4" // of kube-apiserver, to be upgraded
	// atOnce is how many tests go test lets run at the same time: they wait for each other by
	// themselves ([takeTurn]).
	atOnce = 100
)

var (
	// Without it, what breaks one thing of each kind: that is make test-all.
	all = flag.Bool("upstreams.all", false, "run every case, also the upgrade of API servers from "+older+", which is built first and takes minutes")
	// plane is the control plane of all tests but those of versions and rights, and one and two are the API
	// servers that they break. Its own is left alone.
	plane    *controlplane.ControlPlane
	one, two *controlplane.APIServer
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{Parallel: atOnce, SetUp: func(s *harness.Suite) (err error) {
		if testing.Short() { // all that needs them is long
			return nil
		}
		if plane, err = s.ControlPlane(controlplane.Options{}); err != nil {
			return err
		}
		starts, ctx := errgroup.WithContext(s.Context())
		for _, server := range []**controlplane.APIServer{&one, &two} {
			starts.Go(func() (err error) {
				*server, err = plane.AddAPIServer(ctx, "")
				return err
			})
		}
		return starts.Wait()
	}})
}
