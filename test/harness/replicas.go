package harness

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/hop"
)

// Replicas are listproxies behind a balancer, with one serving certificate: clients see one
// address. They are for any number of goroutines.
type Replicas struct {
	Balancer *hop.Balancer

	dir string // of the serving certificate
	ca  []byte

	mu      sync.Mutex
	running []*Proxy
}

// NewReplicas starts the balancer, until the test ends, and no listproxy yet.
func NewReplicas(t testing.TB) *Replicas {
	t.Helper()
	balancer, err := hop.StartBalancer()
	expect.NoError(t, err)
	t.Cleanup(balancer.Close)
	dir := t.TempDir()
	certPath, _, err := serve.SelfSigned(dir, nil)
	expect.NoError(t, err)
	ca, err := os.ReadFile(certPath) // #nosec G304 -- made just now
	expect.NoError(t, err)
	return &Replicas{Balancer: balancer, dir: dir, ca: ca}
}

// Through returns a client's configuration, pointed at the balancer.
func (r *Replicas) Through(direct *rest.Config) *rest.Config {
	cfg := rest.CopyConfig(direct)
	cfg.Host, cfg.CAData, cfg.CAFile = "https://"+r.Balancer.Address(), r.ca, ""
	return cfg
}

// Start runs one more listproxy, waits until it is ready, introduces clients to it, which is then
// not to emit their secrets, and lets the balancer use it.
func (r *Replicas) Start(ctx context.Context, o ProxyOptions, clients ...*rest.Config) (*Proxy, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	o.Args = append([]string{
		"--tls-cert-file", filepath.Join(r.dir, "tls.crt"), "--tls-private-key-file", filepath.Join(r.dir, "tls.key"),
	}, o.Args...)
	p, err := StartProxy(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, client := range clients {
		p.RESTConfig(client)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = append(r.running, p)
	r.Balancer.Add(p.Address())
	return p, nil
}

// Remove takes one out, which is for its caller to end, or has been ended. The balancer still uses it.
func (r *Replicas) Remove(p *Proxy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = slices.DeleteFunc(r.running, func(other *Proxy) bool { return other == p })
}

// All returns those that run, in the order in which they were started.
func (r *Replicas) All() []*Proxy {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.running)
}

// Stop stops all of them at the end of a test.
func (r *Replicas) Stop(t testing.TB) {
	t.Helper()
	for _, p := range r.All() {
		p.end(t)
	}
}
