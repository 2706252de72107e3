package feed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// patience ends a wait for what must come; no test passes because of it. After a long absence
	// of the API server listproxy's own streams wait up to 45 seconds before they try again.
	patience = 3 * time.Minute
	// pollEvery is the time between two looks.
	pollEvery = 30 * time.Millisecond
)

// client asks one server, kube-apiserver or listproxy.
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
	return fmt.Sprintf("%d [%s] %s", a.code, a.source(), bytes.TrimSpace(a.body))
}

// source is what the answer says about where it came from.
func (a answer) source() string { return a.header.Get("Cache-Status") }

// meta is what tests read of lists and objects.
type meta struct {
	Name            string
	ResourceVersion string
	Continue        string
}

func (a answer) meta() meta {
	var o struct{ Metadata meta }
	_ = json.Unmarshal(a.body, &o) // not a list, then; it has no revision
	return o.Metadata
}

// get reads a path, query included.
func (c *client) get(ctx context.Context, path string) (answer, error) {
	return c.send(ctx, http.MethodGet, path, nil)
}

// accepting reads a path in a representation.
func (c *client) accepting(ctx context.Context, accept, path string) (answer, error) {
	return c.sendAccepting(ctx, http.MethodGet, accept, path, nil)
}

// do writes an object and returns the answer's metadata; what is not a 2xx is an error.
func (c *client) do(ctx context.Context, method, path string, object any) (meta, error) {
	var body []byte
	if object != nil {
		var err error
		if body, err = json.Marshal(object); err != nil {
			return meta{}, err
		}
	}
	a, err := c.send(ctx, method, path, body)
	if err != nil {
		return meta{}, err
	}
	if a.code/100 != 2 {
		return meta{}, fmt.Errorf("%s %s: %s", method, path, a)
	}
	return a.meta(), nil
}

func (c *client) send(ctx context.Context, method, path string, body []byte) (answer, error) {
	return c.sendAccepting(ctx, method, "application/json", path, body)
}

func (c *client) sendAccepting(ctx context.Context, method, accept, path string, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
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

// query of a list: "key=value" pairs.
func query(pairs ...string) url.Values {
	q := url.Values{}
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		q.Set(key, value)
	}
	return q
}

// The ways to ask for a state.
func anyVersion() url.Values                  { return query("resourceVersion=0") }
func notOlderThan(revision string) url.Values { return query("resourceVersion=" + revision) }
func exactly(revision string) url.Values {
	return query("resourceVersion="+revision, "resourceVersionMatch=Exact")
}
func firstPage(revision string) url.Values { return query("resourceVersion="+revision, "limit=2") }

// poll asks again until there is no error. It gives up at the end of patience or of ctx.
func poll(ctx context.Context, look func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	began, telling := time.Now(), error(nil)
	for {
		err := look()
		var final wrongError
		if err == nil || errors.As(err, &final) {
			return err
		}
		// The last look may have been cut short, which says nothing about why it was not the first.
		if telling == nil || ctx.Err() == nil {
			telling = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", time.Since(began).Round(time.Millisecond), telling)
		case <-ticker.C:
		}
	}
}

// wrongError is what no waiting makes good.
type wrongError struct{ what string }

func (e wrongError) Error() string { return e.what }
