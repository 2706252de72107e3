package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
)

// setUpTimeout bounds what comes before the tests. The first time, much is compiled.
const setUpTimeout = 15 * time.Minute

// Options of [Main].
type Options struct {
	// SetUp starts what the tests share. Without it they share nothing.
	SetUp func(s *Suite) error
	// Parallel is how many tests run at the same time, unless -parallel says; 0: as many as go test
	// lets.
	Parallel int
}

// Main is the TestMain of a folder whose tests run listproxy or a control plane. It calls
// [Options.SetUp], runs the tests, ends what was started, and ends the process. The tests have
// failed if any listproxy was left running, had a data race, or has ever emitted a secret.
func Main(m *testing.M, o Options) {
	flag.Parse()
	os.Exit(verdict(run(m, o), os.Stderr))
}

// judged: the process asks for the [Verdict] at its end.
var judged atomic.Bool

func run(m *testing.M, o Options) (code int) {
	judged.Store(true)
	s := &Suite{}
	defer func() {
		if err := s.end(); err != nil {
			Log(err.Error())
			code = max(code, 1)
		}
	}()
	err := atOnce(o.Parallel)
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

// atOnce sets how many tests run at the same time, unless the command line says.
func atOnce(n int) error {
	given := n == 0
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(n))
}

// Long leaves a test to make test-all: go test -short skips it.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
}

// Log says where a run is, beside what go test prints.
func Log(line string) { _, _ = fmt.Fprintln(os.Stderr, line) }

// Suite is what all tests of a folder share while it is being set up.
type Suite struct {
	ctx  context.Context //nolint:containedctx // of the set-up, which is one call
	ends []func() error
}

// Context bounds the set-up.
func (s *Suite) Context() context.Context { return s.ctx }

// Cleanup has end called after all tests. What was set up last ends first.
func (s *Suite) Cleanup(end func() error) { s.ends = append(s.ends, end) }

func (s *Suite) end() (err error) {
	for len(s.ends) > 0 {
		last := len(s.ends) - 1
		end := s.ends[last]
		s.ends = s.ends[:last]
		err = errors.Join(err, end())
	}
	return err
}

// Dir makes a directory that is removed after all tests.
func (s *Suite) Dir() (string, error) {
	dir, err := os.MkdirTemp("", "listproxy-test-")
	if err == nil {
		s.Cleanup(func() error { return os.RemoveAll(dir) })
	}
	return dir, err
}

// ControlPlane starts etcd and kube-apiserver.
func (s *Suite) ControlPlane(o controlplane.Options) (*controlplane.ControlPlane, error) {
	if o.Log == nil {
		o.Log = Log
	}
	cp, err := controlplane.Start(s.ctx, o)
	if err == nil {
		s.Cleanup(func() error { cp.Stop(); return nil })
	}
	return cp, err
}

// Proxy starts a listproxy. A data race, a panic or a secret in what it wrote fails the tests.
func (s *Suite) Proxy(o ProxyOptions) (*Proxy, error) {
	p, err := StartProxy(s.ctx, o)
	if err == nil {
		s.Cleanup(p.Stop)
	}
	return p, err
}

// RunControlPlane runs etcd and kube-apiserver until the test ends.
func RunControlPlane(t testing.TB, o controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	if o.Log == nil {
		o.Log = Log
	}
	cp, err := controlplane.Start(t.Context(), o)
	expect.NoError(t, err)
	t.Cleanup(cp.Stop)
	return cp
}

// startPatience ends the start of a listproxy that does not become ready, on however slow a
// machine.
const startPatience = 5 * time.Minute

// RunProxy runs a listproxy until the test ends, of which it tells the log if the test fails. The
// test fails, too, if it does not end well.
func RunProxy(t testing.TB, o ProxyOptions) *Proxy {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startPatience)
	defer cancel()
	p, err := StartProxy(ctx, o)
	expect.NoError(t, err)
	t.Cleanup(func() { p.end(t) })
	return p
}

// end stops a listproxy at the end of a test. What was wrong with it, a data race or a panic, is an error
// of the test; if there was one before, its log is told.
func (p *Proxy) end(t testing.TB) {
	t.Helper()
	if t.Failed() {
		t.Logf("listproxy's log:\n%s", p.Told())
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}
