package upstreams

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
)

const older = "1.35.4" // of kube-apiserver, to be upgraded

var (
	// Without it, what breaks one thing of each kind: that is make test.
	all = flag.Bool("upstreams.all", false, "run every case, also the upgrade of API servers from "+older+", which is built first and takes minutes")
	// plane is the control plane of all tests but that of versions, and one and two are the API servers
	// that they break. Its own is left alone.
	plane    *controlplane.ControlPlane
	one, two *controlplane.APIServer
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(harness.Verdict(run(m)))
}

func run(m *testing.M) int {
	ctx := context.Background()
	err := func() (err error) {
		if _, err = harness.BuildProxy(ctx); err != nil {
			return err
		}
		if plane, err = controlplane.Start(ctx, controlplane.Options{Log: logLine}); err != nil {
			return err
		}
		if one, err = plane.AddAPIServer(ctx, ""); err != nil {
			return err
		}
		two, err = plane.AddAPIServer(ctx, "")
		return err
	}()
	if plane != nil {
		defer plane.Stop()
	}
	if err != nil {
		logLine(err.Error())
		return 1
	}
	return m.Run()
}

func logLine(line string) { _, _ = fmt.Fprintln(os.Stderr, line) }
