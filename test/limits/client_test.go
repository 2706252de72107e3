package limits

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// client asks one server.
type client struct {
	base string
	http *http.Client
}

func newClient(cfg *rest.Config) (*client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	return &client{base: cfg.Host, http: c}, nil
}

// get reads a list, and says whether it came from memory.
func (c *client) get(ctx context.Context, target string) (body []byte, fromMemory bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+target, http.NoBody)
	if err != nil {
		return nil, false, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, false, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", target, resp.Status, body)
	}
	return body, strings.HasPrefix(resp.Header.Get("Cache-Status"), "listproxy; hit"), err
}

// await reads a list until it comes from memory.
func (c *client) await(ctx context.Context, target string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		body, fromMemory, err := c.get(ctx, target)
		if err == nil && fromMemory {
			return body, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("%s does not come from memory: %w: %w", target, ctx.Err(), err)
		}
	}
}

// create creates an object, unless it exists.
func (c *client) create(ctx context.Context, path string, object any) error {
	return c.write(ctx, http.MethodPost, path, "application/json", object, http.StatusCreated, http.StatusConflict)
}

// patch changes an object.
func (c *client) patch(ctx context.Context, path string, change any) error {
	return c.write(ctx, http.MethodPatch, path, "application/merge-patch+json", change, http.StatusOK)
}

func (c *client) write(ctx context.Context, method, path, contentType string, object any, codes ...int) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && !slices.Contains(codes, resp.StatusCode) {
		err = fmt.Errorf("%s %s: %s: %.200s", method, path, resp.Status, answer)
	}
	return err
}
