package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
)

// startTimeout bounds each wait for something that starts. Usual are five seconds in all; a busy machine
// takes longer.
const startTimeout = 5 * time.Minute

var (
	errStopped    = errors.New("controlplane: stopped")
	errNotRunning = errors.New("not running")
)

// VersionEnv names the environment variable that chooses the version of kube-apiserver, as in
// LISTPROXY_TEST_KUBERNETES=1.32.13. A module beside tools/ must pin it. Without it, it is what tools/
// pins.
const VersionEnv = "LISTPROXY_TEST_KUBERNETES"

// kineEnv names the environment variable that puts a kine in etcd's place, as in LISTPROXY_TEST_KINE=0.17.5.
// What asks etcd itself does not work then.
const kineEnv = "LISTPROXY_TEST_KINE"

// Options are the choices of [Start]. The zero value is good.
type Options struct {
	// APIServerArgs follow the usual arguments of kube-apiserver. Of a flag given twice the last one
	// counts, except for lists (feature gates), which add up.
	APIServerArgs []string
	// ServiceAccounts is for tests of pods: kube-apiserver gives each the token of its service account,
	// and refuses pods without one. Nothing here makes default service accounts.
	ServiceAccounts bool
	// Log receives a line now and then: what is built, what is started. Default: nothing. It
	// may be called from another goroutine.
	Log func(string)
}

// A ControlPlane is a running etcd and kube-apiserver. All methods may be called concurrently.
type ControlPlane struct {
	// First is the API server that [Start] started. It is not to be set.
	First *APIServer

	options     Options
	paths       binaries.Paths
	kine        bool // in etcd's place
	version     string
	dir         string
	credentials *credentials
	reaper      *reaper
	etcdPort    *port
	peerPort    *port

	mu        sync.Mutex   // one start, stop or restore at a time
	etcd      *process     // nil until first started
	servers   []*APIServer // the first and all further ones
	snapshots int          // how many etcd snapshots were made
	stopped   bool
}

// Start builds what is missing (see package binaries) and starts a control plane. When it returns,
// the API server is ready, its built-in roles, the namespaces default, team-a and team-b and
// the rights of all [Users] exist and are in force. ctx ends the start, not what was started:
// that runs until Stop or until this process ends, however it ends.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	if options.Log == nil {
		options.Log = func(string) {}
	}
	cp := &ControlPlane{options: options}
	var err error
	cp.paths, cp.version, err = binaries.Of(ctx, options.Log, os.Getenv(VersionEnv))
	if version := os.Getenv(kineEnv); version != "" && err == nil {
		cp.kine = true
		cp.paths.Etcd, err = binaries.Tool(ctx, options.Log, "kine-"+version)
	}
	if err == nil {
		err = cp.start(ctx)
	}
	if err != nil {
		cp.Stop()
		return nil, fmt.Errorf("control plane: %w", err)
	}
	return cp, nil
}

func (cp *ControlPlane) start(ctx context.Context) error {
	begin := time.Now()
	var err error
	if cp.dir, err = os.MkdirTemp("", "controlplane-"); err != nil {
		return err
	}
	if cp.reaper, err = startReaper(cp.dir); err != nil {
		return err
	}
	for _, p := range []**port{&cp.etcdPort, &cp.peerPort} {
		if *p, err = reservePort(); err != nil {
			return err
		}
	}
	if cp.First, err = cp.newAPIServer(); err != nil {
		return err
	}
	if cp.credentials, err = newCredentials(cp.dir); err != nil {
		return err
	}
	for _, u := range Users() {
		config := cp.CertConfig(u.Name)
		if u.token {
			config = cp.RESTConfig(u.Name)
		}
		if err := WriteKubeconfig(cp.KubeconfigPath(u.Name), config); err != nil {
			return err
		}
	}
	cp.options.Log("starting etcd and kube-apiserver in " + cp.dir)
	if err := cp.starting(ctx, func(ctx context.Context) error {
		if err := cp.startBoth(ctx); err != nil {
			return err
		}
		return cp.setUp(ctx)
	}); err != nil {
		return err
	}
	cp.options.Log(fmt.Sprintf("ready on %s after %.1fs", cp.URL(), time.Since(begin).Seconds()))
	return nil
}

// starting does what starts something, unless the control plane has been stopped.
func (cp *ControlPlane) starting(ctx context.Context, start func(context.Context) error) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped {
		return errStopped
	}
	return start(ctx)
}

// Stop ends both processes and removes the directory. It may be called more than once.
func (cp *ControlPlane) Stop() {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped {
		return
	}
	cp.stopped = true
	// Nothing is kept, so nothing needs an orderly end. The API server goes first, lest it
	// fill its log with complaints.
	for _, s := range cp.servers {
		s.end()
	}
	cp.etcd.kill()
	if cp.reaper != nil {
		cp.reaper.reap()
	}
	for _, p := range []*port{cp.etcdPort, cp.peerPort} {
		if p != nil {
			p.release()
		}
	}
}

// Dir is the directory of this control plane. The logs are DIR/etcd.log and
// DIR/kube-apiserver.log.
func (cp *ControlPlane) Dir() string { return cp.dir }

// Binaries says where the programs are that this control plane runs.
func (cp *ControlPlane) Binaries() binaries.Paths { return cp.paths }

// Version is the version of the API server that runs, as "1.36.3".
func (cp *ControlPlane) Version() string { return cp.version }
