package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// patience ends a wait for what must come; nothing passes because of it. After a long absence
	// of the API server listproxy's own streams wait up to 45 seconds before they try again.
	patience = 3 * time.Minute
	// requestTimeout is what a client here gives a request. A forward to a server that stands still
	// would take as long as that.
	requestTimeout = 10 * time.Second
	pollEvery      = 20 * time.Millisecond
)

// client asks one server.
type client struct {
	base string
	http *http.Client
}

func newClient(cfg *rest.Config) (*client, error) {
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	return &client{base: cfg.Host, http: c}, nil
}

// answer is what a server said.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (a answer) String() string {
	return fmt.Sprintf("%d [%s] %.600q", a.code, a.source(), a.body)
}

// source says where an answer of listproxy came from.
func (a answer) source() string { return a.header.Get("Cache-Status") }

func (a answer) fromMemory() bool { return strings.HasPrefix(a.source(), "listproxy; hit") }

// get reads a target, a path with its query.
func (c *client) get(ctx context.Context, accept, target string) (answer, error) {
	return c.send(ctx, http.MethodGet, accept, target, nil)
}

func (c *client) send(ctx context.Context, method, accept, target string, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.base+target, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Accept", accept)
	switch {
	case method == http.MethodPatch:
		req.Header.Set("Content-Type", "application/merge-patch+json")
	case body != nil:
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return answer{code: resp.StatusCode, header: resp.Header, body: got}, err
}

// do writes an object and returns the answer; what is not a 2xx is an error.
func (c *client) do(ctx context.Context, method, path string, object any) (answer, error) {
	var body []byte
	if object != nil {
		var err error
		if body, err = json.Marshal(object); err != nil {
			return answer{}, err
		}
	}
	a, err := c.send(ctx, method, "application/json", path, body)
	if err == nil && a.code/100 != 2 {
		err = fmt.Errorf("%s %s: %s", method, path, a)
	}
	return a, err
}

// wrongError is what no waiting makes good.
type wrongError struct{ what string }

func (e wrongError) Error() string { return e.what }

// poll looks again until there is no error. It gives up at the end of patience or of ctx.
func poll(ctx context.Context, what string, look func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := look()
		switch {
		case err == nil:
			return nil
		case errors.As(err, new(wrongError)):
			return fmt.Errorf("%s: %w", what, err)
		case !pause(ctx, pollEvery):
			return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), err)
		}
	}
}

// pause waits, and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
