package limits

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/soak"
)

var (
	full = flag.Bool("limits.full", false, "go to the limits that docs/reliability.md states, not only near them")

	plane  *controlplane.ControlPlane
	binary string
)

// patience ends a wait for what must come; nothing passes because of it.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(harness.Verdict(func() int {
		dir, err := os.MkdirTemp("", "limits-")
		if err != nil {
			return failed(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		binary = filepath.Join(dir, "listproxy")
		build := exec.CommandContext(context.Background(), "go", "build", "-o", binary, "github.com/listproxy/listproxy/cmd/listproxy") // #nosec G204 -- fixed words
		if out, err := build.CombinedOutput(); err != nil {
			return failed(fmt.Errorf("building listproxy: %w\n%s", err, out))
		}
		if plane, err = controlplane.Start(context.Background(), controlplane.Options{Log: logLine}); err != nil {
			return failed(err)
		}
		defer plane.Stop()
		return m.Run()
	}()))
}

func failed(err error) int {
	logLine(err.Error())
	return 1
}

func logLine(line string) { _, _ = fmt.Fprintln(os.Stderr, line) }

// scale is a number for make limits, and a smaller one for make test.
func scale(whole, some int) int {
	if *full {
		return whole
	}
	return some
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
	var err error
	r.hop, err = hop.Start(plane.URL(), plane.CA())
	r.must(err)
	t.Cleanup(r.hop.Close)
	own := plane.RESTConfig(controlplane.Feed)
	own.Host, own.CAData = r.hop.URL(), r.hop.CA()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// Without the log of requests, which is kept in memory here.
	r.proxy, err = harness.StartProxy(ctx, harness.ProxyOptions{Upstream: own, Binary: binary, Args: append([]string{"--log-level", "info"}, args...)})
	r.must(err)
	t.Cleanup(func() {
		if err := r.proxy.Stop(); err != nil {
			t.Error(err)
		}
	})
	r.via, err = newClient(r.proxy.RESTConfig(plane.RESTConfig(controlplane.Admin)))
	r.must(err)
	r.direct, err = newClient(plane.RESTConfig(controlplane.Admin))
	r.must(err)
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// sample is what listproxy takes now.
func (r *rig) sample() soak.Sample {
	r.Helper()
	s, err := soak.Take(r.Context(), r.proxy.AdminURL()+"/metrics")
	r.must(err)
	return s
}

// say prints a figure for the documentation.
func (r *rig) say(format string, args ...any) { logLine("limits: " + fmt.Sprintf(format, args...)) }

const mib = 1 << 20
