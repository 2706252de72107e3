package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

const (
	jsonType = "application/json"
	// typedClients and metadataClients are what client-go's clients accept.
	typedClients    = "application/vnd.kubernetes.protobuf,application/json"
	metadataClients = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// client asks one server as one user.
type client struct {
	http *http.Client
	base string
}

// pair is a user as a client of kube-apiserver and of listproxy.
type pair struct{ direct, proxied client }

func newPair(s *scene, user string) (pair, error) {
	cfg := s.cp.RESTConfig(user)
	cfg.UserAgent = "listproxy-demo"
	direct, err := newClient(cfg)
	if err != nil {
		return pair{}, err
	}
	proxied, err := newClient(s.proxy.RESTConfig(cfg))
	return pair{direct: direct, proxied: proxied}, err
}

func newClient(cfg *rest.Config) (client, error) {
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return client{}, fmt.Errorf("make a client of %s: %w", cfg.Host, err)
	}
	return client{http: c, base: cfg.Host}, nil
}

// answer is what a server said.
type answer struct {
	code        int
	body        []byte // without its content encoding
	wire        int    // bytes of the body as sent
	cacheStatus string
	took        time.Duration // from sending the request to the last byte
}

// get asks for a path, in JSON.
func (c client) get(ctx context.Context, path string) (answer, error) {
	return c.getAs(ctx, jsonType, path, false)
}

// getAs asks for a path in a form, for gzip or for plain bytes.
func (c client) getAs(ctx context.Context, accept, path string, zipped bool) (answer, error) {
	encoding := "identity"
	if zipped {
		encoding = "gzip"
	}
	a, err := c.do(ctx, http.MethodGet, path, nil, http.Header{"Accept": {accept}, "Accept-Encoding": {encoding}})
	if err != nil || !zipped {
		return a, err
	}
	z, err := gzip.NewReader(bytes.NewReader(a.body))
	if err != nil {
		return a, fmt.Errorf("GET %s: %w", path, err)
	}
	if a.body, err = io.ReadAll(z); err != nil {
		return a, fmt.Errorf("GET %s: %w", path, err)
	}
	return a, nil
}

// send sends an object, and fails on any answer but 2xx.
func (c client) send(ctx context.Context, method, path string, object any, contentType string) (answer, error) {
	body, err := json.Marshal(object)
	if err != nil {
		return answer{}, fmt.Errorf("encode an object: %w", err)
	}
	a, err := c.do(ctx, method, path, body, http.Header{"Content-Type": {contentType}})
	if err == nil && a.code/100 != 2 {
		err = fmt.Errorf("%s %s: HTTP %d: %s", method, path, a.code, a.body[:min(len(a.body), 1000)])
	}
	return a, err
}

// post creates an object.
func (c client) post(ctx context.Context, path string, object any) (answer, error) {
	return c.send(ctx, http.MethodPost, path, object, "application/json")
}

// do sends a request and reads the answer to its end.
func (c client) do(ctx context.Context, method, path string, body []byte, header http.Header) (answer, error) {
	begun := time.Now()
	resp, err := c.open(ctx, method, path, body, header)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{code: resp.StatusCode, cacheStatus: resp.Header.Get("Cache-Status")}
	var read bytes.Buffer
	if _, err := read.ReadFrom(resp.Body); err != nil {
		return a, fmt.Errorf("%s %s: %w", method, path, err)
	}
	a.body, a.wire, a.took = read.Bytes(), read.Len(), time.Since(begun)
	return a, nil
}

// open sends a request and returns when the answer begins.
func (c client) open(ctx context.Context, method, path string, body []byte, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	req.Header = header
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", jsonType)
	}
	return c.http.Do(req)
}
