package controlplane

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"time"
)

// apiserverGrace is how long the API server may take to end by itself; it lets requests in
// flight end first.
const apiserverGrace = 15 * time.Second

// apiserverArgs are the usual arguments of an API server on a port of its own.
func (cp *ControlPlane) apiserverArgs(own *port) []string {
	file := func(name string) string { return filepath.Join(cp.dir, name) }
	args := []string{
		"--etcd-servers=" + cp.EtcdURL(),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", own.number),
		// Without an address it looks for a default route, which a test machine may lack;
		// and it refuses to make endpoints of a loopback address.
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
		// A year is never: tests compact by hand, so that old revisions go when they say so.
		// Zero would also turn off that the watch caches follow a compaction.
		"--etcd-compaction-interval=8760h",
		"--v=1",
	}
	if !cp.options.ServiceAccounts {
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return args
}

// startAPIServer starts the API server, unless it runs, and waits until it is ready and announced.
// The caller holds cp.mu.
func (cp *ControlPlane) startAPIServer(ctx context.Context) error {
	if !cp.apiserver.alive() {
		p, err := startProcess(cp.dir, "kube-apiserver", cp.paths.KubeAPIServer, append(cp.apiserverArgs(cp.apiPort), cp.options.APIServerArgs...))
		if err != nil {
			return err
		}
		cp.apiserver = p
	}
	return cp.awaitAPIServer(ctx, cp.apiserver, cp.URL())
}

// StartAPIServer starts the API server again after it was stopped or killed, on the same port,
// and returns when it is ready. Where it runs already, it only waits for that.
func (cp *ControlPlane) StartAPIServer(ctx context.Context) error {
	return cp.starting(ctx, cp.startAPIServer)
}

// StopAPIServer asks the API server to end (SIGTERM) and waits until it is gone. It is killed
// if that takes longer than 15 seconds.
func (cp *ControlPlane) StopAPIServer() error {
	return cp.withAPIServer(func(p *process) error { p.terminate(apiserverGrace); return nil })
}

// KillAPIServer ends the API server at once (SIGKILL) and waits until it is gone.
func (cp *ControlPlane) KillAPIServer() error {
	return cp.withAPIServer(func(p *process) error { p.kill(); return nil })
}

// PauseAPIServer stops the API server's execution (SIGSTOP) and returns when it stands still:
// connections stay open and stay silent, new ones are accepted by the kernel only.
func (cp *ControlPlane) PauseAPIServer() error {
	return cp.withAPIServer((*process).pause)
}

// ResumeAPIServer lets a paused API server go on (SIGCONT).
func (cp *ControlPlane) ResumeAPIServer() error {
	return cp.withAPIServer(func(p *process) error { return p.signal(syscall.SIGCONT) })
}

// APIServerPID is the process ID of the API server; another one after each restart.
func (cp *ControlPlane) APIServerPID() (pid int, err error) {
	err = cp.withAPIServer(func(p *process) error { pid = p.cmd.Process.Pid; return nil })
	return pid, err
}

// withAPIServer calls f with the API server's process, which is alive.
func (cp *ControlPlane) withAPIServer(f func(*process) error) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	switch {
	case cp.stopped:
		return errStopped
	case !cp.apiserver.alive():
		return fmt.Errorf("kube-apiserver: %w", errNotRunning)
	}
	return f(cp.apiserver)
}
