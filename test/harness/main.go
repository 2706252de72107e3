package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
)

// setUpTimeout bounds the set-up, which may compile kube-apiserver.
const setUpTimeout = 15 * time.Minute

// Options are the options of [Main].
type Options struct {
	// SetUp starts what the tests share. It may be nil.
	SetUp func(s *Suite) error
	// Parallel is the number of tests that run at the same time; 0 is go test's default. -parallel overrides it.
	Parallel int
}

// Main is the TestMain of a folder whose tests run listproxy or a control plane. It calls [Options.SetUp], runs the tests, ends
// what was started, and exits. The exit code is a failure as well if a listproxy was left running, had a data race, or has ever
// emitted a secret.
func Main(m *testing.M, o Options) {
	flag.Parse()
	code := run(m, o)
	os.Exit(KillRunning(code))
}

// runsMain is true if the tests run in [Main], which calls [KillRunning]. If it is false, LaunchProxy returns an error, since
// nothing would notice emitted secrets.
var runsMain atomic.Bool

func run(m *testing.M, o Options) (code int) {
	runsMain.Store(true)
	s := &Suite{}
	defer func() {
		if err := s.end(); err != nil {
			Log(err.Error())
			code = max(code, 1)
		}
	}()
	err := setParallel(o.Parallel)
	if err == nil && o.SetUp != nil {
		var cancel context.CancelFunc
		s.ctx, cancel = context.WithTimeout(context.Background(), setUpTimeout)
		err = o.SetUp(s)
		cancel()
	}
	if err != nil {
		Log(err.Error())
		return 1
	}
	return m.Run()
}

// setParallel sets the number of tests that run at the same time, unless n is 0 or the command line has -parallel.
func setParallel(n int) error {
	isGiven := false
	flag.Visit(func(f *flag.Flag) { isGiven = isGiven || f.Name == "test.parallel" })
	if n == 0 || isGiven {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(n))
}

// Long skips a test with -short. make test-all runs it.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
}

// Log prints a line to stderr, which go test shows at once.
func Log(line string) { _, _ = fmt.Fprintln(os.Stderr, line) }

// Suite sets up what all tests of a folder share.
type Suite struct {
	ctx  context.Context //nolint:containedctx // valid during the set-up, which is one call
	ends []func() error
}

// Context returns the context of the set-up.
func (s *Suite) Context() context.Context { return s.ctx }

// Cleanup calls end after all tests. The last added is called first.
func (s *Suite) Cleanup(end func() error) { s.ends = append(s.ends, end) }

// end calls all cleanups.
func (s *Suite) end() (err error) {
	for _, end := range slices.Backward(s.ends) {
		err = errors.Join(err, end())
	}
	return err
}

// Dir returns a new directory, which is removed after all tests.
func (s *Suite) Dir() (string, error) {
	dir, err := os.MkdirTemp("", "listproxy-test-")
	if err == nil {
		s.Cleanup(func() error { return os.RemoveAll(dir) })
	}
	return dir, err
}

// ControlPlane starts etcd and kube-apiserver, until all tests have ended.
func (s *Suite) ControlPlane(o controlplane.Options) (*controlplane.ControlPlane, error) {
	cp, err := startControlPlane(s.ctx, o)
	if err == nil {
		s.Cleanup(func() error { cp.Stop(); return nil })
	}
	return cp, err
}

// Proxy starts a listproxy, until all tests have ended. A data race, a panic or an emitted secret fails the tests.
func (s *Suite) Proxy(o ProxyOptions) (*Proxy, error) {
	p, err := StartProxy(s.ctx, o)
	if err == nil {
		s.Cleanup(p.Stop)
	}
	return p, err
}

// startControlPlane starts etcd and kube-apiserver, which log to [Log] unless o says otherwise.
func startControlPlane(ctx context.Context, o controlplane.Options) (*controlplane.ControlPlane, error) {
	if o.Log == nil {
		o.Log = Log
	}
	return controlplane.Start(ctx, o)
}

// RunControlPlane runs etcd and kube-apiserver until the test ends.
func RunControlPlane(t testing.TB, o controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	cp, err := startControlPlane(t.Context(), o)
	expect.NoError(t, err)
	t.Cleanup(cp.Stop)
	return cp
}

// startPatience is more than any listproxy takes to become ready.
const startPatience = 5 * time.Minute

// RunProxy runs a listproxy until the test ends. If the test has failed, it logs the listproxy's log. The test fails if
// [Proxy.Stop] returns an error.
func RunProxy(t testing.TB, o ProxyOptions) *Proxy {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startPatience)
	defer cancel()
	p, err := StartProxy(ctx, o)
	expect.NoError(t, err)
	t.Cleanup(func() { p.end(t) })
	return p
}

// end stops a listproxy at the end of a test. If the test has failed, it logs the log. An error of Stop fails the test.
func (p *Proxy) end(t testing.TB) {
	t.Helper()
	if t.Failed() {
		t.Logf("listproxy's log:\n%s", p.LogExcerpt())
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}
