package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
)

// startTimeout bounds how long starting may take where the caller's context has no deadline.
// Usual is five seconds; a busy machine takes longer.
const startTimeout = 5 * time.Minute

var (
	errStopped    = errors.New("controlplane: stopped")
	errNotRunning = errors.New("not running")
)

// VersionEnv names the environment variable that chooses the version of kube-apiserver where
// [Options].Version does not, as in LISTPROXY_TEST_KUBERNETES=1.32.13.
const VersionEnv = "LISTPROXY_TEST_KUBERNETES"

// Options are the choices of [Start]. The zero value is good.
type Options struct {
	// Dir is where everything is kept: data, logs, keys, kubeconfigs. It must be empty or not
	// exist; it is removed at the end. Default: a new directory for temporary files.
	Dir string
	// EtcdArgs and APIServerArgs follow the usual arguments of the two programs. Of a flag
	// given twice the last one counts, except for lists (feature gates), which add up.
	EtcdArgs, APIServerArgs []string
	// Version of kube-apiserver, as "1.32.13"; a module beside tools/ must pin it. It is built
	// when it is first asked for. Default: what the environment's [VersionEnv] says, else what
	// tools/ pins.
	Version string
	// ServiceAccounts is for tests of pods: kube-apiserver gives each the token of its service account,
	// and refuses pods without one. Nothing here makes default service accounts.
	ServiceAccounts bool
	// Jaeger starts one too, and makes kube-apiserver send it the spans of all requests.
	Jaeger bool
	// Log receives a line now and then: what is built, what is started. Default: nothing. It
	// may be called from another goroutine.
	Log func(string)
}

// A ControlPlane is a running etcd and kube-apiserver. All methods may be called concurrently.
type ControlPlane struct {
	options     Options
	paths       binaries.Paths
	version     string
	dir         string
	credentials *credentials
	etcdClient  *http.Client
	reaper      *reaper
	etcdPort    *port
	peerPort    *port
	apiPort     *port
	jaeger      *jaeger // nil: not wanted

	mu              sync.Mutex // one start, stop or restore at a time
	etcd, apiserver *process   // nil until first started
	further         []*APIServer
	snapshots       int // how many etcd snapshots were made
	stopped         bool
}

// Start builds what is missing (see package binaries) and starts a control plane. When it returns,
// the API server is ready, its built-in roles, the namespaces default, team-a and team-b and
// the rights of all [Users] exist and are in force. ctx ends the start, not what was started:
// that runs until Stop or until this process ends, however it ends.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	if options.Log == nil {
		options.Log = func(string) {}
	}
	paths, version, err := binaries.Of(ctx, options.Log, cmp.Or(options.Version, os.Getenv(VersionEnv)))
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	cp := &ControlPlane{
		options: options,
		paths:   paths,
		version: version,
		// No proxy from the environment, and no connection kept over a restart.
		etcdClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	if err := cp.start(ctx); err != nil {
		cp.Stop()
		return nil, fmt.Errorf("control plane: %w", err)
	}
	return cp, nil
}

func (cp *ControlPlane) start(ctx context.Context) error {
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	begin := time.Now()
	var err error
	if cp.dir, err = makeDir(cp.options.Dir); err != nil {
		return err
	}
	if cp.reaper, err = startReaper(cp.dir); err != nil {
		return err
	}
	for _, p := range []**port{&cp.etcdPort, &cp.peerPort, &cp.apiPort} {
		if *p, err = reservePort(); err != nil {
			return err
		}
	}
	if cp.credentials, err = newCredentials(cp.dir); err != nil {
		return err
	}
	if err := cp.credentials.writeKubeconfigs(cp.dir, cp.URL()); err != nil {
		return err
	}
	if cp.options.Jaeger {
		if cp.jaeger, err = startJaeger(ctx, cp.dir, cp.options.Log); err != nil {
			return err
		}
		cp.options.APIServerArgs = append([]string{"--tracing-config-file=" + cp.jaeger.configFile}, cp.options.APIServerArgs...)
	}
	cp.options.Log("starting etcd and kube-apiserver in " + cp.dir)
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if err := cp.startBoth(ctx); err != nil {
		return err
	}
	if err := cp.setUp(ctx); err != nil {
		return err
	}
	cp.options.Log(fmt.Sprintf("ready on %s after %.1fs", cp.URL(), time.Since(begin).Seconds()))
	return nil
}

// starting does what starts something, for as long as that may take, unless the control plane has
// been stopped.
func (cp *ControlPlane) starting(ctx context.Context, start func(context.Context) error) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped {
		return errStopped
	}
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
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
	cp.apiserver.kill()
	for _, s := range cp.further {
		s.end()
	}
	cp.etcd.kill()
	cp.jaeger.stop()
	if cp.reaper != nil {
		cp.reaper.reap()
	} else if cp.dir != "" {
		_ = os.RemoveAll(cp.dir)
	}
	for _, p := range []*port{cp.etcdPort, cp.peerPort, cp.apiPort} {
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

// makeDir returns an empty directory, absolute. It refuses one that holds anything, because it
// will be removed.
func makeDir(dir string) (string, error) {
	if dir == "" {
		made, err := os.MkdirTemp("", "controlplane-")
		if err != nil {
			return "", fmt.Errorf("make a directory: %w", err)
		}
		return made, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("look into the directory: %w", err)
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("directory %s is not empty; it would be removed at the end", dir)
	}
	if err := os.Chmod(dir, 0o700); err != nil { // #nosec G302 -- a directory
		return "", fmt.Errorf("make a directory: %w", err)
	}
	return dir, nil
}

// withStartTimeout gives a context without a deadline one.
func withStartTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, startTimeout)
}
