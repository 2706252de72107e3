// Package ask sends requests to kube-apiserver or listproxy in tests, and reads whole answers, whose bytes tests compare.
// [Client.Open] is for watches and other streams.
package ask

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const mergeType = "application/merge-patch+json"

// Client asks one server as one user. Safe for concurrent use.
type Client struct {
	// Base is the server's URL, without a path.
	Base string
	// HTTP sends the requests, with the user's credentials unless Header has them.
	HTTP *http.Client
	// Timeout bounds a request and the reading of its answer; 0 is no timeout. It does not bound Open.
	Timeout time.Duration
	// Header is sent with each request, and replaces default headers.
	Header http.Header
}

// New returns a client for the server and the user of a configuration. Clients of equal configurations share connections, as
// client-go's do.
func New(cfg *rest.Config, timeout time.Duration) (*Client, error) {
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{Base: cfg.Host, HTTP: c, Timeout: timeout}, nil
}

// MustNew is New, but an error ends the test.
func MustNew(t testing.TB, cfg *rest.Config, timeout time.Duration) *Client {
	t.Helper()
	c, err := New(cfg, timeout)
	expect.NoError(t, err)
	return c
}

// At returns a client without credentials, as for listproxy's admin port. It sends no Accept header.
func At(base string) *Client {
	return &Client{Base: base, HTTP: http.DefaultClient, Header: http.Header{"Accept": nil}}
}

// Get sends a GET for a target, a path with its query, and accepts JSON. An answer of any status is not an error.
func (c *Client) Get(ctx context.Context, target string) (Answer, error) {
	return c.send(ctx, http.MethodGet, target, nil)
}

// GetAs is Get with an Accept header.
func (c *Client) GetAs(ctx context.Context, accept, target string) (Answer, error) {
	return c.WithHeader("Accept", accept).Get(ctx, target)
}

// AwaitMemory asks listproxy for a target until the answer comes from memory, and returns that answer.
func (c *Client) AwaitMemory(ctx context.Context, target string) (a Answer, err error) {
	err = poll.Retry(ctx, target+" from memory", func() error {
		var err error
		a, err = c.Get(ctx, target)
		if err == nil && (a.Code != http.StatusOK || !a.FromMemory()) {
			err = errors.New(a.String())
		}
		return err
	})
	return a, err
}

// Do sends an object in JSON, as a merge patch if the method is PATCH. A nil object means no body. An answer other than
// 2xx is an error, with which it is returned as well.
func (c *Client) Do(ctx context.Context, method, target string, object any) (Answer, error) {
	var body []byte
	if object != nil {
		var err error
		if body, err = json.Marshal(object); err != nil {
			return Answer{}, err
		}
	}
	a, err := c.send(ctx, method, target, body)
	if err == nil && a.Code/100 != 2 {
		err = fmt.Errorf("%s %s: %s", method, target, a)
	}
	return a, err
}

// Ensure creates an object, unless it exists.
func (c *Client) Ensure(ctx context.Context, target string, object any) error {
	a, err := c.Do(ctx, http.MethodPost, target, object)
	if a.Code == http.StatusConflict {
		return nil
	}
	return err
}

// WithHeader returns a copy of the client that sets one more header of each request.
func (c *Client) WithHeader(name, value string) *Client {
	other := *c
	other.Header = c.Header.Clone()
	if other.Header == nil {
		other.Header = http.Header{}
	}
	other.Header.Set(name, value)
	return &other
}

// Open sends a request and returns its response, whose body the caller reads and closes. A body is sent as JSON, as in Do,
// unless Header says otherwise.
func (c *Client) Open(ctx context.Context, method, target string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Base+target, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", JSON)
	switch {
	case method == http.MethodPatch:
		req.Header.Set("Content-Type", mergeType)
	case body != nil:
		req.Header.Set("Content-Type", JSON)
	}
	maps.Copy(req.Header, c.Header)
	return c.HTTP.Do(req)
}

// send sends a request within Timeout and returns the whole answer.
func (c *Client) send(ctx context.Context, method, target string, body []byte) (Answer, error) {
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	var payload io.Reader
	if body != nil {
		payload = bytes.NewReader(body)
	}
	resp, err := c.Open(ctx, method, target, payload)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return Answer{Code: resp.StatusCode, Header: resp.Header, Body: got}, err
}
