// Package harness runs listproxy in front of a real kube-apiserver for tests. [Main] is the TestMain of the folders that use
// it. [StartProxy] builds listproxy with the race detector and runs it as a process, as an operator would: flags in, HTTPS
// out.
//
// Package ask below sends requests and reads answers, events reads watches, kinds has the objects that tests write, hop is a
// network with faults, informers has client-go's informers, poll waits for what must come, process measures a process,
// secrets finds emitted secrets, soak finds growth, and workload makes pods like a cluster's.
package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// ProxyOptions are the options of one process.
type ProxyOptions struct {
	// Upstream is listproxy's own configuration for the API server, with a token.
	Upstream *rest.Config
	// Args are appended to the usual arguments.
	Args []string
	// Binary is the program to run; "" is the one that BuildProxy builds.
	Binary string
}

// Proxy is a running listproxy.
type Proxy struct {
	dir    string
	cmd    *exec.Cmd
	log    *logbuffer.Buffer
	exited chan struct{} // closed when the process has ended
	exit   error         // of the process, once exited is closed
	ending atomic.Bool   // Stop or Kill was called

	address, admin string
	connect        *url.URL // nil without --connect-port
	ca             []byte

	answers  []emission // of the admin port, at the end
	searched sync.Once
	leaked   error // the result of searchSecrets
}

var (
	servingLine = regexp.MustCompile(`msg=serving address=(\S+) admin=(\S+)`)
	connectLine = regexp.MustCompile(`msg="serving CONNECT" address=(\S+)`)
)

// StartProxy runs listproxy on free ports of loopback, and returns when it is ready.
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
	if testing.Testing() && !runsMain.Load() {
		return nil, errors.New("the folder's TestMain must be harness.Main, which checks that listproxy has emitted no secrets")
	}
	if o.Binary == "" {
		if o.Binary, err = BuildProxy(); err != nil {
			return nil, err
		}
	}
	p := &Proxy{log: &logbuffer.Buffer{}, exited: make(chan struct{})}
	if p.dir, err = os.MkdirTemp("", "listproxy-run-"); err != nil {
		return nil, err
	}
	args, err := p.prepare(o)
	if err == nil {
		err = p.start(o.Binary, args)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	p.register(o.Upstream)
	if err := p.awaitAddress(ctx); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

// prepare writes the files of the process and returns its arguments.
func (p *Proxy) prepare(o ProxyOptions) (args []string, _ error) {
	kubeconfig := filepath.Join(p.dir, "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, o.Upstream); err != nil {
		return nil, err
	}
	certPath, _, err := serve.SelfSigned(p.dir, nil) // which listproxy finds in its --cert-dir
	if err != nil {
		return nil, err
	}
	if p.ca, err = os.ReadFile(certPath); err != nil { // #nosec G304 -- made just now
		return nil, err
	}
	return append([]string{
		"--kubeconfig", kubeconfig,
		"--bind-address", "127.0.0.1", "--secure-port", "0", "--admin-bind-address", "127.0.0.1:0",
		"--cert-dir", p.dir, "--log-level", "debug", "--shutdown-timeout", "3s",
	}, o.Args...), nil
}

// start starts the process. If it ends before Stop or Kill, its log is printed.
func (p *Proxy) start(binary string, args []string) error {
	p.cmd = exec.Command(binary, args...) // #nosec G204 -- the program under test
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1")
	started := make(chan error, 1)
	go func() {
		// The kernel kills the child when this thread ends, so a killed test leaves no process behind. The thread must live
		// as long as the child.
		lockThread()
		p.cmd.SysProcAttr = dieWithParent()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.exit = p.cmd.Wait()
		}
		close(p.exited)
		if !p.ending.Load() && p.exit != nil {
			// The tests go on and fail with errors such as "connection refused", which do not say why.
			_, _ = fmt.Fprintf(os.Stderr, "listproxy ended by itself: %v\n%s\n", p.exit, secrets.Suite.Masked(excerpt(p.Log())))
		}
	}()
	return <-started
}

// awaitAddress waits until the process logs the addresses of its ports.
func (p *Proxy) awaitAddress(ctx context.Context) error {
	for {
		if m := servingLine.FindStringSubmatch(p.Log()); m != nil {
			p.address, p.admin = m[1], m[2]
			if m := connectLine.FindStringSubmatch(p.Log()); m != nil { // logged before the serving line
				p.connect = &url.URL{Scheme: "https", Host: m[1]}
			}
			return nil
		}
		if err := p.pause(ctx); err != nil {
			return err
		}
	}
}

// Ready reports whether /readyz answers 200, and returns its body or the error.
func (p *Proxy) Ready(ctx context.Context) (bool, string) {
	a, err := ask.At(p.AdminURL()).Get(ctx, "/readyz?verbose")
	if err != nil {
		return false, err.Error()
	}
	return a.Code == http.StatusOK, string(a.Body)
}

// Status returns the status page.
func (p *Proxy) Status(ctx context.Context) (s admin.Status, err error) {
	a, err := ask.At(p.AdminURL()).WithHeader("Accept", ask.JSON).Do(ctx, http.MethodGet, "/statusz", nil)
	if err == nil {
		err = json.Unmarshal(a.Body, &s)
	}
	return s, err
}

// Metric returns the sum and the number of the series of a metric that have these labels.
func (p *Proxy) Metric(ctx context.Context, name string, labels map[string]string) (sum float64, series int, err error) {
	return soak.Sum(ctx, http.DefaultClient, p.AdminURL()+"/metrics", name, labels)
}

// pause waits a moment. It returns an error if the process or ctx has ended.
func (p *Proxy) pause(ctx context.Context) error {
	select {
	case <-p.exited:
		return fmt.Errorf("listproxy ended: %w\n%s", p.exit, p.LogExcerpt())
	case <-ctx.Done():
		return fmt.Errorf("%w\n%s", ctx.Err(), p.LogExcerpt())
	case <-time.After(20 * time.Millisecond):
		return nil
	}
}

// Address returns the host and port of URL.
func (p *Proxy) Address() string { return p.address }

// URL returns the URL for clients.
func (p *Proxy) URL() string { return "https://" + p.address }

// AdminURL returns the URL of the admin port.
func (p *Proxy) AdminURL() string { return "http://" + p.admin }

// CA returns the serving certificate in PEM, which is its own CA, unless Args name another certificate.
func (p *Proxy) CA() []byte { return p.ca }

// ConnectURL returns the URL for clients that use listproxy as their proxy-url, or nil without --connect-port.
func (p *Proxy) ConnectURL() *url.URL { return p.connect }

// Dir returns the --cert-dir. The file tls.crt in it is the CA.
func (p *Proxy) Dir() string { return p.dir }

// RESTConfig returns a client's configuration with listproxy as its server. From then on listproxy must not emit the client's
// secrets.
func (p *Proxy) RESTConfig(direct *rest.Config) *rest.Config {
	addClient("a client's", direct)
	cfg := rest.CopyConfig(direct)
	cfg.Host = p.URL()
	cfg.CAData, cfg.CAFile = p.ca, ""
	return cfg
}

// TunnelConfig returns a client's configuration with listproxy as its proxy-url. It needs --connect-port.
func (p *Proxy) TunnelConfig(direct *rest.Config) *rest.Config {
	cfg := p.RESTConfig(direct)
	cfg.Host, cfg.Proxy = direct.Host, http.ProxyURL(p.connect)
	return cfg
}

// Log returns what the process has written to stdout and stderr.
func (p *Proxy) Log() string { return p.log.String() }

// Binary returns the path of the program.
func (p *Proxy) Binary() string { return p.cmd.Path }

// PID returns the process ID.
func (p *Proxy) PID() int { return p.cmd.Process.Pid }

// endPatience is more than any process takes to end, unless it hangs.
const endPatience = 3 * time.Minute

// Stop ends the process with SIGTERM. It returns an error if the process had a data race or a panic, did not end, ended with
// another code than 0, or has emitted a secret.
func (p *Proxy) Stop() error {
	p.ending.Store(true)
	p.collectAnswers()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(endPatience):
		p.Kill()
		return errors.Join(fmt.Errorf("listproxy did not end within %v of SIGTERM", endPatience), p.searchSecrets())
	}
	leak := p.searchSecrets()
	exitErr := p.exit
	if strings.Contains(p.Log(), "DATA RACE") || strings.Contains(p.Log(), "panic") {
		exitErr = errors.Join(errors.New("a data race or a panic"), exitErr)
	}
	if exitErr != nil {
		exitErr = fmt.Errorf("listproxy ended badly: %w\n%s", exitErr, p.LogExcerpt())
	}
	return errors.Join(exitErr, leak)
}

// Kill ends the process with SIGKILL. If it has emitted a secret, [KillRunning] says so.
func (p *Proxy) Kill() {
	p.ending.Store(true)
	p.collectAnswers()
	_ = p.cmd.Process.Kill()
	<-p.exited
	_ = p.searchSecrets()
}

// Signal sends a signal to the process.
func (p *Proxy) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }
