package upstream

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// Client returns a client of one server, which follows no redirect: its credentials are for that
// server only, and what it asks for is there or nowhere.
func Client(cfg *rest.Config) (*http.Client, error) {
	client, err := rest.HTTPClientFor(cfg) // which may be http.DefaultClient
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: client.Transport, Timeout: client.Timeout, CheckRedirect: kubehttp.NoRedirect}, nil
}

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
