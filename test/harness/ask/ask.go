// Package ask puts requests to kube-apiserver or to listproxy in tests, and reads the answers to
// their ends.
//
// It is for what a test looks at byte for byte, and for writes on the way there. Watches and other
// streams take [Client.Open].
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

// Client asks one server as one user. It is for any number of goroutines.
type Client struct {
	// Base is the server's URL, without a path.
	Base string
	// HTTP carries the user's credentials, and trusts the server.
	HTTP *http.Client
	// Timeout bounds a request, the reading of its answer included. 0: its context alone does.
	// Streams have no other bound than their contexts.
	Timeout time.Duration
	// Header is sent with each request, in place of what would be sent by itself.
	Header http.Header
}

// New returns a client of a configuration's server, as its user. It shares its connections with
// others of the same configuration, as client-go's clients do.
func New(cfg *rest.Config, timeout time.Duration) (*Client, error) {
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{Base: cfg.Host, HTTP: c, Timeout: timeout}, nil
}

// MustNew is New where an error ends the test.
func MustNew(t testing.TB, cfg *rest.Config, timeout time.Duration) *Client {
	t.Helper()
	c, err := New(cfg, timeout)
	expect.NoError(t, err)
	return c
}

// At returns a client of a server that nobody logs in to, such as listproxy's admin port. It
// accepts anything.
func At(base string) *Client {
	return &Client{Base: base, HTTP: http.DefaultClient, Header: http.Header{"Accept": nil}}
}

// Get reads a target, which is a path with its query, in JSON. Answers of any code are no error.
func (c *Client) Get(ctx context.Context, target string) (Answer, error) {
	return c.send(ctx, http.MethodGet, target, nil)
}

// GetAs is Get in the representation that an Accept header asks for.
func (c *Client) GetAs(ctx context.Context, accept, target string) (Answer, error) {
	return c.With("Accept", accept).Get(ctx, target)
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

// Ensure creates an object, unless it is there.
func (c *Client) Ensure(ctx context.Context, target string, object any) error {
	a, err := c.Do(ctx, http.MethodPost, target, object)
	if a.Code == http.StatusConflict {
		return nil
	}
	return err
}

// With returns a client of the same server and user that sends one more header with each request.
func (c *Client) With(name, value string) *Client {
	other := *c
	if other.Header = c.Header.Clone(); other.Header == nil {
		other.Header = http.Header{}
	}
	other.Header.Set(name, value)
	return &other
}

// Open sends a request and returns when the header of its answer is there, for who reads a stream.
// A body is taken for JSON, as in Do, unless the client's Header says otherwise.
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
