package upstreams

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
	// patience ends a wait for what must come; nothing passes because of it.
	patience = 3 * time.Minute
	// requestTimeout is longer than any failure here should take to be noticed.
	requestTimeout = time.Minute
	pollEvery      = 20 * time.Millisecond
)

// client asks one address.
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

type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (a answer) String() string {
	return fmt.Sprintf("%d [%s] %.300q", a.code, a.header.Get("Cache-Status"), a.body)
}

func (a answer) fromMemory() bool {
	return strings.HasPrefix(a.header.Get("Cache-Status"), "listproxy; hit")
}

func (c *client) get(ctx context.Context, accept, target string) (answer, error) {
	return c.send(ctx, http.MethodGet, accept, target, nil)
}

// send sends one request; an object is merged (PATCH) or created (POST).
func (c *client) send(ctx context.Context, method, accept, target string, object any) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var body io.Reader
	if object != nil {
		encoded, err := json.Marshal(object)
		if err != nil {
			return answer{}, err
		}
		body = bytes.NewReader(encoded)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+target, body)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Accept", accept)
	if object != nil {
		r.Header.Set("Content-Type", map[string]string{http.MethodPatch: "application/merge-patch+json", http.MethodPost: asJSON}[method])
	}
	res, err := c.http.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	return answer{code: res.StatusCode, header: res.Header, body: got}, err
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
