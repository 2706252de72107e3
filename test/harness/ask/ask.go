// Package ask puts requests to kube-apiserver or to listproxy in tests, and reads the answers to their
// ends.
//
// It is for what a test looks at byte for byte, and for writes on the way there. Watches and other
// streams take [Client.HTTP].
package ask

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

const mergeType = "application/merge-patch+json"

// Client asks one server as one user. It is for any number of goroutines.
type Client struct {
	// Base is the server's URL, without a path.
	Base string
	// HTTP carries the user's credentials, and trusts the server.
	HTTP *http.Client
	// Timeout bounds a request, the reading of its answer included. 0: its context alone does.
	Timeout time.Duration
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

// Get reads a target, which is a path with its query, in JSON. Answers of any code are no error.
func (c *Client) Get(ctx context.Context, target string) (Answer, error) {
	return c.GetAs(ctx, JSON, target)
}

// GetAs is Get in the representation that an Accept header asks for.
func (c *Client) GetAs(ctx context.Context, accept, target string) (Answer, error) {
	return c.send(ctx, http.MethodGet, accept, target, nil)
}

// Send sends an object in JSON; as a merge patch, if the method is PATCH. nil: no body. Answers of
// any code are no error.
func (c *Client) Send(ctx context.Context, method, target string, object any) (Answer, error) {
	var body []byte
	if object != nil {
		var err error
		if body, err = json.Marshal(object); err != nil {
			return Answer{}, err
		}
	}
	return c.send(ctx, method, JSON, target, body)
}

// Do is Send where an answer other than 2xx is an error. The answer is returned with it.
func (c *Client) Do(ctx context.Context, method, target string, object any) (Answer, error) {
	a, err := c.Send(ctx, method, target, object)
	if err == nil && a.Code/100 != 2 {
		err = fmt.Errorf("%s %s: %s", method, target, a)
	}
	return a, err
}

func (c *Client) send(ctx context.Context, method, accept, target string, body []byte) (Answer, error) {
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Base+target, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("Accept", accept)
	switch {
	case method == http.MethodPatch:
		req.Header.Set("Content-Type", mergeType)
	case body != nil:
		req.Header.Set("Content-Type", JSON)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return Answer{Code: resp.StatusCode, Header: resp.Header, Body: got}, err
}
