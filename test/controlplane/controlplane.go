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

// startTimeout bounds each wait for something that starts. A start usually takes five seconds in all, and longer on a busy
// machine.
const startTimeout = 5 * time.Minute

var (
	errStopped    = errors.New("controlplane: stopped")
	errNotRunning = errors.New("not running")
)

// VersionEnv is the environment variable with the version of kube-apiserver, as in LISTPROXY_TEST_KUBERNETES=1.32.13. A module
// beside tools/ must pin the version. The default is the version that tools/ pins.
const VersionEnv = "LISTPROXY_TEST_KUBERNETES"

// kineEnv is the environment variable that replaces etcd by a version of kine, as in LISTPROXY_TEST_KINE=0.17.5. With kine,
// methods about etcd do not work.
const kineEnv = "LISTPROXY_TEST_KINE"

// Options are those of [Start]. The zero value is valid.
type Options struct {
	// APIServerArgs follow the usual arguments of kube-apiserver. They override flags before them, but lists (feature
	// gates) add up.
	APIServerArgs []string
	// ServiceAccounts enables the admission plugin ServiceAccount: each pod gets the token of its service account, which must
	// exist. Nothing creates default service accounts.
	ServiceAccounts bool
	// Log receives lines about what is built and started, from any goroutine. nil: no log.
	Log func(string)
}

// A ControlPlane is a running etcd and kube-apiserver. All methods may be called concurrently.
type ControlPlane struct {
	// First is the API server that [Start] started. Read-only.
	First *APIServer

	options     Options
	paths       binaries.Paths
	kine        bool // paths.Etcd is kine
	version     string
	dir         string
	credentials *credentials
	reaper      *reaper
	etcdPort    *port
	peerPort    *port

	mu        sync.Mutex   // held by each start, stop and restore
	etcd      *process     // nil before the first start
	servers   []*APIServer // First and those that were added
	snapshots int          // number of etcd snapshots so far
	stopped   bool
}

// Start builds the binaries that are missing (see package binaries) and starts a control plane. When it returns,
// the API server is ready, the namespaces default, team-a and team-b exist, and the rights of all [Users] are in force. ctx
// bounds the start only: the control plane runs until Stop, or until this process ends.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	if options.Log == nil {
		options.Log = func(string) {}
	}
	cp := &ControlPlane{options: options}
	err := cp.prepareBinaries(ctx)
	if err == nil {
		err = cp.start(ctx)
	}
	if err != nil {
		cp.Stop()
		return nil, fmt.Errorf("control plane: %w", err)
	}
	return cp, nil
}

// prepareBinaries builds the programs that are missing, and sets cp.paths.
func (cp *ControlPlane) prepareBinaries(ctx context.Context) (err error) {
	if cp.paths, cp.version, err = binaries.ControlPlane(ctx, cp.options.Log, os.Getenv(VersionEnv)); err != nil {
		return err
	}
	version := os.Getenv(kineEnv)
	if version == "" {
		return nil
	}
	cp.kine = true
	cp.paths.Etcd, err = binaries.Tool(ctx, cp.options.Log, "kine-"+version)
	return err
}

// start creates the directory, the reaper, which removes the directory in the end, and all ports, credentials and kubeconfigs.
// Then it starts etcd and the first API server, and sets up namespaces and rights.
func (cp *ControlPlane) start(ctx context.Context) error {
	begin := time.Now()
	var err error
	if cp.dir, err = os.MkdirTemp("", "controlplane-"); err != nil {
		return err
	}
	if cp.reaper, err = startReaper(cp.dir); err != nil {
		return err
	}
	if cp.etcdPort, err = reservePort(); err != nil {
		return err
	}
	if cp.peerPort, err = reservePort(); err != nil {
		return err
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
	if err := cp.whileRunning(ctx, func(ctx context.Context) error {
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

// whileRunning calls do with cp.mu held, unless the control plane has been stopped.
func (cp *ControlPlane) whileRunning(ctx context.Context, do func(context.Context) error) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped {
		return errStopped
	}
	return do(ctx)
}

// Stop ends all processes, and has the reaper remove the directory. It may be called more than once.
func (cp *ControlPlane) Stop() {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped {
		return
	}
	cp.stopped = true
	// Nothing is kept, so no process needs an orderly end. API servers end before etcd, so that they do not log errors.
	for _, s := range cp.servers {
		s.close()
	}
	cp.etcd.kill() // does nothing if cp.etcd is nil, since the start has failed earlier
	if cp.reaper != nil {
		cp.reaper.reap()
	}
	for _, p := range []*port{cp.etcdPort, cp.peerPort} {
		if p != nil {
			p.release()
		}
	}
}

// Dir returns the directory of this control plane. The logs are DIR/etcd.log and
// DIR/kube-apiserver.log.
func (cp *ControlPlane) Dir() string { return cp.dir }

// Binaries returns the paths of the programs that this control plane runs.
func (cp *ControlPlane) Binaries() binaries.Paths { return cp.paths }

// Version returns the version of kube-apiserver with which the control plane was started, such as "1.36.3". [APIServer.Use]
// does not change it.
func (cp *ControlPlane) Version() string { return cp.version }
