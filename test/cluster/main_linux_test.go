package cluster_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/cluster"
	"github.com/listproxy/listproxy/test/harness"
)

// patience ends a wait for something that must come; no test passes because of it.
const patience = 5 * time.Minute

var (
	withCluster = flag.Bool("cluster", false, "run a cluster, and test on it")
	// sharedCluster is the cluster that all tests share; nil without -cluster.
	sharedCluster *cluster.Cluster
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

// runTests runs the tests, and returns their exit code. Without -cluster, it just runs them. With -cluster, this process only
// makes Linux namespaces for the cluster, and runs the tests in a second process there.
func runTests(ctx context.Context, m *testing.M) (int, error) {
	if !*withCluster {
		return m.Run(), nil
	}
	if cluster.Inside() {
		return runInside(ctx, m)
	}
	const openPorts = 0 // the tests need no port outside of the namespaces
	code, err := cluster.Enter(ctx, harness.Log, openPorts)
	return code, errors.Join(err, context.Cause(ctx)) // an interrupted run has failed
}

// runInside starts the cluster in the Linux namespaces of this process, and runs the tests on it.
func runInside(ctx context.Context, m *testing.M) (int, error) {
	logEnd := func(err error) { harness.Log(err.Error()) } // if a process of the cluster ends, tests fail by themselves
	var err error
	sharedCluster, err = cluster.Start(ctx, harness.Log, logEnd)
	if err != nil {
		return 1, err
	}
	code := m.Run()
	sharedCluster.Stop()
	return code, nil
}
