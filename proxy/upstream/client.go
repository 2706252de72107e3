package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/version"
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

// Prober asks for the version of the API server, with listproxy's own credentials. It speaks HTTP/1.1,
// so that each question can make a connection of its own: a balancer chooses by connection which API
// server answers.
type Prober struct {
	base   *url.URL
	client *http.Client
}

// NewProber returns a Prober of the API server that cfg points to. timeout bounds each question; 0 is
// none.
func NewProber(cfg *rest.Config, timeout time.Duration) (*Prober, error) {
	base, err := Base(cfg)
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout, cfg.NextProtos = timeout, []string{"http/1.1"}
	client, err := Client(cfg)
	return &Prober{base: base, client: client}, err
}

// Version reads /version, and closes the connection. If the status is not 200, there is no error,
// but the version is not known.
func (p *Prober) Version(ctx context.Context) (said version.Info, status int, err error) {
	status, body, err := read(ctx, p.client, p.base.JoinPath("version"), true)
	if err != nil || status != http.StatusOK {
		return said, status, err
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return version.Info{}, status, fmt.Errorf("/version: %w", err)
	}
	return said, status, nil
}

// maxAnswer is how many bytes of an answer are read.
const maxAnswer = 64 << 10

// read returns the answer at an address that is not a resource's. last: the connection is closed
// afterwards.
func read(ctx context.Context, client *http.Client, at *url.URL, last bool) (status int, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	r.Close = last
	res, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return res.StatusCode, body, err
}
