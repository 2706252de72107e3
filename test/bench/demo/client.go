package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/harness/ask"
)

const (
	// typedClients and metadataClients are what client-go's clients accept.
	typedClients    = "application/vnd.kubernetes.protobuf,application/json"
	metadataClients = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// client asks one server as one user.
type client struct{ *ask.Client }

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
	c, err := ask.New(cfg, 0)
	if err != nil {
		return client{}, fmt.Errorf("make a client of %s: %w", cfg.Host, err)
	}
	return client{c}, nil
}

// answer is what a server said.
type answer struct {
	ask.Answer
	wire int           // bytes of the body as sent
	took time.Duration // from sending the request to the last byte
}

// getAs asks for a path in a form, for gzip or for plain bytes.
func (c client) getAs(ctx context.Context, accept, path string, zipped bool) (answer, error) {
	encoding := "identity"
	if zipped {
		encoding = "gzip"
	}
	begun := time.Now()
	said, err := c.With("Accept-Encoding", encoding).GetAs(ctx, accept, path)
	a := answer{said, len(said.Body), time.Since(begun)}
	if err != nil || !zipped {
		return a, err
	}
	z, err := gzip.NewReader(bytes.NewReader(a.Body))
	if err != nil {
		return a, fmt.Errorf("GET %s: %w", path, err)
	}
	if a.Body, err = io.ReadAll(z); err != nil {
		return a, fmt.Errorf("GET %s: %w", path, err)
	}
	return a, nil
}

// post creates an object.
func (c client) post(ctx context.Context, path string, object any) (answer, error) {
	begun := time.Now()
	said, err := c.Do(ctx, http.MethodPost, path, object)
	return answer{said, len(said.Body), time.Since(begun)}, err
}
