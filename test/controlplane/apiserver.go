package controlplane

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
)

// apiserverGrace is the time after SIGTERM in which an API server lets requests in flight end. Then it is killed.
const apiserverGrace = 15 * time.Second

// An APIServer is a kube-apiserver on the etcd of a control plane. It keeps its port over restarts. All methods may be called
// concurrently.
type APIServer struct {
	cp   *ControlPlane
	name string
	port *port

	mu      sync.Mutex
	binary  string
	args    []string
	process *process
	stopped bool
}

// newAPIServer adds an API server, without starting it. The caller holds cp.mu.
func (cp *ControlPlane) newAPIServer() (*APIServer, error) {
	p, err := reservePort()
	if err != nil {
		return nil, err
	}
	s := &APIServer{cp: cp, name: "kube-apiserver", port: p, binary: cp.paths.KubeAPIServer, args: cp.options.APIServerArgs}
	if len(cp.servers) > 0 {
		s.name += fmt.Sprintf("-%d", len(cp.servers)+1)
	}
	cp.servers = append(cp.servers, s)
	return s, nil
}

// AddAPIServer starts one more API server, with the same certificates, tokens and keys, and returns when it is ready.
// version and args are those of [APIServer.Use]; without either, the API server is like the first one.
func (cp *ControlPlane) AddAPIServer(ctx context.Context, version string, args ...string) (s *APIServer, err error) {
	err = cp.whileRunning(ctx, func(context.Context) (err error) {
		s, err = cp.newAPIServer()
		return err
	})
	if err != nil {
		return nil, err
	}
	if version != "" || len(args) > 0 {
		if err := s.Use(ctx, version, args...); err != nil {
			return nil, err
		}
	}
	return s, s.Start(ctx)
}

// URL returns the address at which the API server listens: https, host and port.
func (s *APIServer) URL() string { return "https://" + s.port.address() }

// Use sets the version, as "1.32.13", and the arguments of the next start. "" is the version that tools/ pins; a module
// beside tools/ must pin any other. args replace those of [Options].
func (s *APIServer) Use(ctx context.Context, version string, args ...string) error {
	paths, _, err := binaries.ControlPlane(ctx, s.cp.options.Log, version)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.binary, s.args = paths.KubeAPIServer, args
	return nil
}

// usualArgs returns the arguments before those of [Options] or [APIServer.Use].
func (s *APIServer) usualArgs() []string {
	file := func(name string) string { return filepath.Join(s.cp.dir, name) }
	args := []string{
		"--etcd-servers=" + s.cp.EtcdURL(),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", s.port.number),
		// Without an address kube-apiserver looks for a default route, which a test machine may lack. It refuses to
		// reconcile endpoints with a loopback address.
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/16",
		"--tls-cert-file=" + file(servingCertFile),
		"--tls-private-key-file=" + file(servingKeyFile),
		"--client-ca-file=" + file(caFile),
		"--token-auth-file=" + file(tokenFile),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + file(accountPublicFile),
		"--service-account-signing-key-file=" + file(accountKeyFile),
		"--allow-privileged=true",
		// A year: only tests compact. With zero, watch caches would not follow a compaction.
		"--etcd-compaction-interval=8760h",
		"--v=1",
	}
	if !s.cp.options.ServiceAccounts {
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return args
}

// Start starts the API server, unless it runs, and returns when it is ready and announced.
func (s *APIServer) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errStopped
	}
	if !s.process.alive() {
		p, err := startProcess(s.cp.dir, s.name, s.binary, append(s.usualArgs(), s.args...))
		if err != nil {
			return err
		}
		s.process = p
	}
	return s.await(ctx)
}

// Stop ends the API server in order (SIGTERM), and waits until it is gone. After apiserverGrace it is killed.
func (s *APIServer) Stop() error {
	return s.withProcess(func(p *process) error { p.terminate(apiserverGrace); return nil })
}

// Kill ends the API server at once (SIGKILL) and waits until it is gone.
func (s *APIServer) Kill() error {
	return s.withProcess(func(p *process) error { p.kill(); return nil })
}

// Pause stops the API server's execution (SIGSTOP), and returns when no thread runs: connections stay
// open without data, and only the kernel accepts new ones.
func (s *APIServer) Pause() error { return s.withProcess((*process).pause) }

// Resume lets a paused API server go on (SIGCONT).
func (s *APIServer) Resume() error {
	return s.withProcess(func(p *process) error { return p.signal(syscall.SIGCONT) })
}

// withProcess calls f with the running process. It returns an error if there is none.
func (s *APIServer) withProcess(f func(*process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped:
		return errStopped
	case !s.process.alive():
		return fmt.Errorf("%s: %w", s.name, errNotRunning)
	}
	return f(s.process)
}

// close kills the API server and releases its port. It cannot be started again.
func (s *APIServer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.process.kill()
	s.port.release()
}

// PID returns the process ID, which changes with each start.
func (s *APIServer) PID() (pid int, err error) {
	err = s.withProcess(func(p *process) error { pid = p.cmd.Process.Pid; return nil })
	return pid, err
}
