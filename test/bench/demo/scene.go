package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/harness"
)

// scene is what runs: a control plane, listproxy before it, and clients of both.
type scene struct {
	out    io.Writer
	cp     *controlplane.ControlPlane
	proxy  *harness.Proxy
	binary string // listproxy
	caFile string // the proxy's CA

	admin, alice pair
}

// open builds and starts everything.
func open(ctx context.Context, choice settings, out io.Writer) (_ *scene, err error) {
	s := &scene{out: out}
	if _, err := binaries.Build(ctx, logTo(out)); err != nil {
		return nil, err
	}
	if err := s.buildProxy(ctx); err != nil {
		return nil, err
	}
	if s.cp, err = controlplane.Start(ctx, controlplane.Options{Log: logTo(out), Jaeger: choice.jaeger}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := prepare(ctx, s.cp); err != nil {
		return nil, err
	}
	if err := s.startProxy(ctx); err != nil {
		return nil, err
	}
	say(out, "listproxy ready on %s\n", s.proxy.URL())
	if s.admin, err = newPair(s, controlplane.Admin); err != nil {
		return nil, err
	}
	if s.alice, err = newPair(s, controlplane.Alice); err != nil {
		return nil, err
	}
	return s, nil
}

// buildProxy builds listproxy into the repository's bin, as make build does.
func (s *scene) buildProxy(ctx context.Context) (err error) {
	say(s.out, "building listproxy …\n")
	s.binary, err = harness.BuildPlainProxy(ctx)
	return err
}

// startProxy starts listproxy. Its files go into the control plane's directory, with its pid
// beside those of etcd and kube-apiserver: whatever ends this process, the control plane's
// reaper ends listproxy too and removes all that was made.
func (s *scene) startProxy(ctx context.Context) error {
	if err := os.Setenv("TMPDIR", s.cp.Dir()); err != nil {
		return fmt.Errorf("choose a directory for listproxy: %w", err)
	}
	if endpoint := s.cp.OTLPEndpoint(); endpoint != "" {
		if err := os.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint); err != nil {
			return fmt.Errorf("tell listproxy of Jaeger: %w", err)
		}
	}
	proxy, err := harness.StartProxy(ctx, harness.ProxyOptions{
		Upstream: s.cp.RESTConfig(controlplane.Feed),
		Binary:   s.binary,
		Args:     []string{"--eager", "pods", "--log-level", "info"},
	})
	if err != nil {
		return fmt.Errorf("start listproxy: %w", err)
	}
	s.proxy = proxy
	s.caFile = filepath.Join(s.cp.Dir(), "listproxy-ca.crt")
	if err := os.WriteFile(s.caFile, proxy.CA(), 0o600); err != nil {
		return fmt.Errorf("keep listproxy's CA: %w", err)
	}
	pid := []byte(strconv.Itoa(proxy.PID()))
	if err := os.WriteFile(s.pidFile(), pid, 0o600); err != nil {
		return fmt.Errorf("remember listproxy's pid: %w", err)
	}
	return nil
}

func (s *scene) pidFile() string { return filepath.Join(s.cp.Dir(), "listproxy.pid") }

// close stops and removes everything.
func (s *scene) close() {
	if s.proxy != nil {
		if err := s.proxy.Stop(); err != nil {
			say(s.out, "%v\n", err)
		}
		_ = os.Remove(s.pidFile()) // the number may soon be another's
	}
	s.cp.Stop()
}
