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
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return closing{next} })
	return cfg
}

// closing closes the connection of each request after its answer.
type closing struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (c closing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Close = true
	return c.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find what cancels requests.
func (c closing) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }

// maxAnswer is how many bytes of an answer are read.
const maxAnswer = 64 << 10

// read returns the answer at an address that is not a resource's.
func read(ctx context.Context, client *http.Client, at *url.URL) (status int, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return res.StatusCode, body, err
}
