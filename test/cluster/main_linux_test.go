package cluster_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/cluster"
	"github.com/listproxy/listproxy/test/harness"
)

// patience ends a wait for something that must come; no test passes because of it.
const patience = 5 * time.Minute

var (
	runCluster = flag.Bool("cluster", false, "run a cluster, and test on it")
	// running is the cluster; nil without -cluster.
	running *cluster.Cluster
)

func TestMain(m *testing.M) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := runTests(ctx, m)
	stop()
	if err != nil {
		harness.Log("cluster: " + err.Error())
		code = max(code, 1)
	}
	os.Exit(code)
}

// runTests runs the tests in the namespaces of a cluster, which the tests share, and returns their exit code.
func runTests(ctx context.Context, m *testing.M) (int, error) {
	switch {
	case !*runCluster:
		return m.Run(), nil
	case !cluster.Inside():
		if missing := cluster.Missing(); len(missing) > 0 {
			return 1, fmt.Errorf("this machine lacks:\n  %s", strings.Join(missing, "\n  "))
		}
		if err := cluster.Build(ctx, harness.Log); err != nil {
			return 1, err
		}
		code, err := cluster.Enter(ctx, harness.Log, 0)
		return code, errors.Join(err, context.Cause(ctx)) // an interrupted run has failed
	}
	var err error
	logEnd := func(err error) { harness.Log(err.Error()) } // tests fail by themselves then
	if running, err = cluster.Start(ctx, harness.Log, logEnd); err != nil {
		return 1, err
	}
	code := m.Run()
	running.Stop()
	return code, nil
}
