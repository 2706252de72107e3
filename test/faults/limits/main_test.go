package limits

import (
	"fmt"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/soak"
)

var (
	plane  *controlplane.ControlPlane
	binary string
)

// patience ends a wait for what must come; nothing passes because of it.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{SetUp: func(s *harness.Suite) (err error) {
		if testing.Short() { // all that needs it is long
			return nil
		}
		if binary, err = harness.BuildPlainProxy(s.Context()); err != nil {
			return err
		}
		plane, err = s.ControlPlane(controlplane.Options{})
		return err
	}})
}

// rig is a listproxy behind a hop.
type rig struct {
	*testing.T
	hop    *hop.Hop
	proxy  *harness.Proxy
	via    client
	direct client
}

func newRig(t *testing.T, args ...string) *rig {
	t.Helper()
	r := &rig{T: t}
	r.hop = hop.Run(t, plane.URL(), plane.CA())
	// Without the log of requests, which is kept in memory here.
	r.proxy = harness.RunProxy(t, harness.ProxyOptions{Upstream: r.hop.RESTConfig(plane.RESTConfig(controlplane.Feed)), Binary: binary, Args: append([]string{"--log-level", "info"}, args...)})
	r.via = client{ask.MustNew(r, r.proxy.RESTConfig(plane.RESTConfig(controlplane.Admin)), 0)}
	r.direct = client{ask.MustNew(r, plane.RESTConfig(controlplane.Admin), 0)}
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	expect.NoError(r, err)
}

// sample is what listproxy takes now.
func (r *rig) sample() soak.Sample {
	r.Helper()
	s, err := soak.Take(r.Context(), r.proxy.AdminURL()+"/metrics")
	r.must(err)
	return s
}

// say prints a figure.
func (r *rig) say(format string, args ...any) { harness.Log("limits: " + fmt.Sprintf(format, args...)) }

const mib = 1 << 20
