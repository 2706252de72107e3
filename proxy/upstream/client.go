package upstream

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
)

// WithoutReuse returns cfg for clients that send each request over a connection of its own, with HTTP/1.1: a load
// balancer chooses by connection which API server answers.
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

// WrappedRoundTripper lets client-go find the transport that closes idle connections.
func (c closingTransport) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }

// maxAnswer bounds the bytes that are read of an answer.
const maxAnswer = 64 << 10

// statusOf returns the status of the answer to a GET of an address.
func statusOf(ctx context.Context, client *http.Client, address *url.URL) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer)) // so that the connection can be used again
	return res.StatusCode, err
}
