package controlplane

import (
	"context"
	"fmt"
	"sync"
	"syscall"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
)

// An APIServer is one more kube-apiserver on the etcd of a control plane. It has the same
// certificates, tokens and keys as the first one, and a port of its own, which stays the same over
// restarts. All methods may be called concurrently.
type APIServer struct {
	cp   *ControlPlane
	name string
	port *port

	mu      sync.Mutex
	binary  string
	version string
	args    []string
	process *process
	stopped bool
}

// AddAPIServer starts one more API server and returns when it is ready. Without a version it is
// like the first one; else see [APIServer.Use]. It ends with the control plane.
func (cp *ControlPlane) AddAPIServer(ctx context.Context, version string) (*APIServer, error) {
	own, err := reservePort()
	if err != nil {
		return nil, err
	}
	s := &APIServer{cp: cp, port: own, binary: cp.paths.KubeAPIServer, version: cp.version, args: cp.options.APIServerArgs}
	cp.mu.Lock()
	if cp.stopped {
		cp.mu.Unlock()
		own.release()
		return nil, errStopped
	}
	cp.further = append(cp.further, s)
	s.name = fmt.Sprintf("kube-apiserver-%d", len(cp.further)+1)
	cp.mu.Unlock()
	if version != "" {
		if err := s.Use(ctx, version); err != nil {
			return nil, err
		}
	}
	return s, s.Start(ctx)
}

// URL is where the API server listens: https, host and port.
func (s *APIServer) URL() string { return "https://" + s.port.address() }

// Version is the version that runs, or is to run next.
func (s *APIServer) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Use makes the next start run a version, as [Options].Version has it, with args after the usual
// arguments instead of those of [Options].
func (s *APIServer) Use(ctx context.Context, version string, args ...string) error {
	paths, version, err := binaries.Of(ctx, s.cp.options.Log, version)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.binary, s.version, s.args = paths.KubeAPIServer, version, args
	return nil
}

// Start starts the API server, unless it runs, and returns when it is ready.
func (s *APIServer) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errStopped
	}
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	if !s.process.alive() {
		p, err := startProcess(s.cp.dir, s.name, s.binary, append(s.cp.apiserverArgs(s.port), s.args...))
		if err != nil {
			return err
		}
		s.process = p
	}
	return s.cp.awaitAPIServer(ctx, s.process, s.URL())
}

// Stop asks the API server to end (SIGTERM) and waits until it is gone.
func (s *APIServer) Stop() error {
	return s.with(func(p *process) error { p.terminate(apiserverGrace); return nil })
}

// Kill ends the API server at once (SIGKILL) and waits until it is gone.
func (s *APIServer) Kill() error {
	return s.with(func(p *process) error { p.kill(); return nil })
}

// Pause stops the API server's execution (SIGSTOP) and returns when it stands still.
func (s *APIServer) Pause() error { return s.with((*process).pause) }

// Resume lets a paused API server go on (SIGCONT).
func (s *APIServer) Resume() error {
	return s.with(func(p *process) error { return p.signal(syscall.SIGCONT) })
}

// with calls f with the process, which is alive.
func (s *APIServer) with(f func(*process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.process.alive() {
		return fmt.Errorf("%s: %w", s.name, errNotRunning)
	}
	return f(s.process)
}

// end ends the API server for good.
func (s *APIServer) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.process.kill()
	s.port.release()
}
