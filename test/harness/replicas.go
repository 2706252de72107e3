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

// Replicas are listproxies with the same serving certificate behind a balancer. Safe for concurrent use.
type Replicas struct {
	Balancer *hop.Balancer

	dir string // of the serving certificate
	ca  []byte

	mu      sync.Mutex
	running []*Proxy
}

// NewReplicas returns a balancer without listproxies, which runs until the test ends.
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

// Through returns a client's configuration with the balancer as its server. From then on no listproxy must emit the client's
// secrets.
func (r *Replicas) Through(direct *rest.Config) *rest.Config {
	addClient("a client's", direct)
	cfg := rest.CopyConfig(direct)
	cfg.Host = "https://" + r.Balancer.Address()
	cfg.CAData, cfg.CAFile = r.ca, ""
	return cfg
}

// Start starts one more listproxy, and adds it to the balancer when it is ready. The caller ends it, or Stop does.
func (r *Replicas) Start(ctx context.Context, o ProxyOptions) (*Proxy, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	o.Args = append([]string{
		"--tls-cert-file", filepath.Join(r.dir, "tls.crt"), "--tls-private-key-file", filepath.Join(r.dir, "tls.key"),
	}, o.Args...)
	p, err := StartProxy(ctx, o)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = append(r.running, p)
	r.Balancer.Add(p.Address())
	return p, nil
}

// Remove removes a listproxy from All, so that Stop does not end it. It stays in the balancer.
func (r *Replicas) Remove(p *Proxy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = slices.DeleteFunc(r.running, func(other *Proxy) bool { return other == p })
}

// All returns the listproxies that were started and not removed, in the order of their starts.
func (r *Replicas) All() []*Proxy {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.running)
}

// Stop stops all listproxies at the end of a test.
func (r *Replicas) Stop(t testing.TB) {
	t.Helper()
	for _, p := range r.All() {
		p.end(t)
	}
}
