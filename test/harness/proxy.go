// Package harness is what tests share that run listproxy before a real kube-apiserver. [Main] is
// the TestMain of their folders. [StartProxy] builds listproxy (with the race detector) and runs it
// as a process, as an operator would: flags in, HTTPS out.
//
// What is below: ask puts questions and reads answers, events reads watches, kinds are the objects
// that tests write, hop stands between two and breaks what passes, informers are client-go's, poll
// waits for what must come, process tells what a process takes, secrets finds those that were
// emitted, soak says whether a process grows, and workload makes pods like a cluster's.
package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/harness/secrets"
	"github.com/listproxy/listproxy/test/harness/soak"
)

// ProxyOptions of one process.
type ProxyOptions struct {
	// Upstream is how listproxy reaches the API server, with its own credentials (a token).
	Upstream *rest.Config
	// Args are added to the command line.
	Args []string
	// Binary is what to run; built by BuildProxy if empty.
	Binary string
}

// Proxy is a running listproxy.
type Proxy struct {
	dir    string
	cmd    *exec.Cmd
	log    *logbuffer.Buffer
	exited chan struct{}
	exit   error
	ending atomic.Bool // it is to end

	address, admin string
	connect        *url.URL // nil: not opened
	ca             []byte

	// What it has emitted beside its log, and what of it should not have been.
	answers  []emission
	searched sync.Once
	leaked   error
}

var (
	servingLine = regexp.MustCompile(`msg=serving address=(\S+) admin=(\S+)`)
	connectLine = regexp.MustCompile(`msg="serving CONNECT" address=(\S+)`)
)

// StartProxy runs listproxy on free loopback ports and returns when it is ready.
func StartProxy(ctx context.Context, o ProxyOptions) (*Proxy, error) {
	p, err := LaunchProxy(ctx, o)
	if err != nil {
		return nil, err
	}
	for {
		if ready, _ := p.Ready(ctx); ready {
			return p, nil
		}
		if err := p.pause(ctx); err != nil {
			p.Kill()
			return nil, err
		}
	}
}

// LaunchProxy runs listproxy and returns when it listens, ready or not.
func LaunchProxy(ctx context.Context, o ProxyOptions) (_ *Proxy, err error) {
	if testing.Testing() && !judged.Load() {
		return nil, errors.New("the folder's TestMain must be harness.Main: nobody else asks whether listproxy has emitted secrets")
	}
	if o.Binary == "" {
		if o.Binary, err = BuildProxy(); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "listproxy-run-")
	if err != nil {
		return nil, err
	}
	if _, _, err := net.SplitHostPort(strings.TrimPrefix(o.Upstream.Host, "https://")); err != nil {
		return nil, fmt.Errorf("the upstream %q: %w", o.Upstream.Host, err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, o.Upstream); err != nil {
		return nil, err
	}
	certPath, _, err := serve.SelfSigned(dir, nil) // as if it had been made at another start
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(certPath) // #nosec G304 -- made just now
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"--kubeconfig", kubeconfig,
		"--bind-address", "127.0.0.1", "--secure-port", "0", "--admin-bind-address", "127.0.0.1:0",
		"--cert-dir", dir, "--log-level", "debug", "--shutdown-timeout", "3s",
	}, o.Args...)
	p := &Proxy{dir: dir, ca: ca, log: &logbuffer.Buffer{}, exited: make(chan struct{})}
	p.cmd = exec.Command(o.Binary, args...) // #nosec G204 -- the program under test
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1")
	started := make(chan error, 1)
	go func() {
		// The kernel kills the child when this thread ends, so the thread must outlive it; then
		// a killed test leaves nothing behind.
		lockThread()
		p.cmd.SysProcAttr = dieWithParent()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.exit = p.cmd.Wait()
		}
		close(p.exited)
		if !p.ending.Load() && p.exit != nil {
			// Tests that go on would only say that nobody answers them.
			_, _ = fmt.Fprintf(os.Stderr, "listproxy ended by itself: %v\n%s\n", p.exit, secrets.Suite.Masked(lastOf(p.Log())))
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p.begun(o.Upstream)
	for {
		if m := servingLine.FindStringSubmatch(p.Log()); m != nil {
			p.address, p.admin = m[1], m[2]
			if m := connectLine.FindStringSubmatch(p.Log()); m != nil { // it comes first
				p.connect = &url.URL{Scheme: "https", Host: m[1]}
			}
			return p, nil
		}
		if err := p.pause(ctx); err != nil {
			p.Kill()
			return nil, err
		}
	}
}

// Ready asks /readyz and returns what it said.
func (p *Proxy) Ready(ctx context.Context) (bool, string) {
	a, err := ask.At(p.AdminURL()).Get(ctx, "/readyz?verbose")
	if err != nil {
		return false, err.Error()
	}
	return a.Code == http.StatusOK, string(a.Body)
}

// Status is what the status page says.
func (p *Proxy) Status(ctx context.Context) (s admin.Status, err error) {
	a, err := ask.At(p.AdminURL()).With("Accept", ask.JSON).Do(ctx, http.MethodGet, "/statusz", nil)
	if err == nil {
		err = json.Unmarshal(a.Body, &s)
	}
	return s, err
}

// Metric adds up the series of one of its metrics that have these labels, and says how many they are.
func (p *Proxy) Metric(ctx context.Context, name string, labels map[string]string) (sum float64, series int, err error) {
	return soak.Sum(ctx, http.DefaultClient, p.AdminURL()+"/metrics", name, labels)
}

// pause waits a moment, unless the process or ctx has ended.
func (p *Proxy) pause(ctx context.Context) error {
	select {
	case <-p.exited:
		return fmt.Errorf("listproxy ended: %w\n%s", p.exit, p.Told())
	case <-ctx.Done():
		return fmt.Errorf("%w\n%s", ctx.Err(), p.Told())
	case <-time.After(20 * time.Millisecond):
		return nil
	}
}

// Address is the host and port of URL, as a balancer takes it.
func (p *Proxy) Address() string { return p.address }

// URL is where clients go.
func (p *Proxy) URL() string { return "https://" + p.address }

// AdminURL is where health checks go.
func (p *Proxy) AdminURL() string { return "http://" + p.admin }

// CA is what clients are to trust, PEM, unless Args have a certificate.
func (p *Proxy) CA() []byte { return p.ca }

// ConnectURL is where clients go that have listproxy as their proxy-url.
func (p *Proxy) ConnectURL() *url.URL { return p.connect }

// Dir is the --cert-dir: tls.crt is the CA's file.
func (p *Proxy) Dir() string { return p.dir }

// RESTConfig returns a client's configuration, pointed at the proxy. From then on the proxy must not
// emit the client's secrets.
func (p *Proxy) RESTConfig(direct *rest.Config) *rest.Config {
	addClient("a client's", direct)
	cfg := rest.CopyConfig(direct)
	cfg.Host, cfg.CAData, cfg.CAFile = p.URL(), p.ca, ""
	return cfg
}

// TunnelConfig is RESTConfig with the proxy as the client's proxy-url.
func (p *Proxy) TunnelConfig(direct *rest.Config) *rest.Config {
	cfg := p.RESTConfig(direct)
	cfg.Host, cfg.Proxy = direct.Host, http.ProxyURL(p.connect)
	return cfg
}

// Log is what the process has written.
func (p *Proxy) Log() string { return p.log.String() }

// Binary is the program that runs.
func (p *Proxy) Binary() string { return p.cmd.Path }

// PID of the process.
func (p *Proxy) PID() int { return p.cmd.Process.Pid }

// endPatience finds a process that hangs, on however slow a machine.
const endPatience = 3 * time.Minute

// Stop ends the process as Kubernetes does, and returns an error if it did not end well (a data
// race, a panic, or hanging on) or has emitted a secret.
func (p *Proxy) Stop() error {
	p.collect()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(endPatience):
		p.Kill()
		return errors.Join(fmt.Errorf("listproxy did not end within %v of SIGTERM", endPatience), p.leaked)
	}
	leaked := p.search()
	bad := p.exit
	if strings.Contains(p.Log(), "DATA RACE") || strings.Contains(p.Log(), "panic") {
		bad = errors.Join(errors.New("a data race or a panic"), bad)
	}
	if bad != nil {
		bad = fmt.Errorf("listproxy ended badly: %w\n%s", bad, p.Told())
	}
	return errors.Join(bad, leaked)
}

// Kill ends the process at once. [Verdict] tells if it has emitted a secret.
func (p *Proxy) Kill() {
	p.collect()
	_ = p.cmd.Process.Kill()
	<-p.exited
	_ = p.search()
}

// Signal sends a signal to the process.
func (p *Proxy) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }
