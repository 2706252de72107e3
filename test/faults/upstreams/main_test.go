package upstreams

import (
	"flag"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
)

const older = "1.35.4" // of kube-apiserver, to be upgraded

var (
	// Without it, what breaks one thing of each kind: that is make test-all.
	all = flag.Bool("upstreams.all", false, "run every case, also the upgrade of API servers from "+older+", which is built first and takes minutes")
	// plane is the control plane of all tests but that of versions, and one and two are the API
	// servers that they break. Its own is left alone.
	plane    *controlplane.ControlPlane
	one, two *controlplane.APIServer
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{SetUp: func(s *harness.Suite) (err error) {
		if plane, err = s.ControlPlane(controlplane.Options{}); err != nil {
			return err
		}
		if one, err = plane.AddAPIServer(s.Context(), ""); err != nil {
			return err
		}
		two, err = plane.AddAPIServer(s.Context(), "")
		return err
	}})
}
