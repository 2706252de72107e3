package upstream

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// WithoutConnectionReuse returns a copy of cfg for clients that use each connection for one request only, with HTTP/1.1. A
// load balancer chooses an API server for each connection, so the requests of such a client reach different API servers.
func WithoutConnectionReuse(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.NextProtos = []string{"http/1.1"}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return closingTransport{next} })
	return cfg
}

// closingTransport makes net/http close the connection of each request after the answer.
type closingTransport struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (c closingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Close = true
	return c.RoundTripper.RoundTrip(r)
}
