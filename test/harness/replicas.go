package harness

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/hop"
)

// Replicas are listproxies behind a balancer, with one serving certificate: clients see one
// address.
type Replicas struct {
	Proxies
	Balancer *hop.Balancer

	dir string // of the serving certificate
	ca  []byte
}

// NewReplicas starts the balancer, until the test ends, and no listproxy yet.
func NewReplicas(t testing.TB) *Replicas {
	t.Helper()
	r := &Replicas{dir: t.TempDir()}
	var err error
	if r.Balancer, err = hop.StartBalancer(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Balancer.Close)
	certPath, _, err := serve.SelfSigned(r.dir, nil)
	expect.NoError(t, err)
	if r.ca, err = os.ReadFile(certPath); err != nil {
		t.Fatal(err)
	}
	return r
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
	r.Add(p)
	r.Balancer.Add(p.Address())
	return p, nil
}
