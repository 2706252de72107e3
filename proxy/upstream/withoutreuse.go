package upstream

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// WithoutReuse returns a copy of cfg for clients that send each request over a connection of its own, with HTTP/1.1. Behind
// a load balancer, which chooses an API server for each connection, their requests reach different API servers.
func WithoutReuse(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.NextProtos = []string{"http/1.1"}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return closingTransport{next} })
	return cfg
}

// closingTransport closes the connection of each request after its answer.
type closingTransport struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (c closingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Close = true
	return c.RoundTripper.RoundTrip(r)
}
