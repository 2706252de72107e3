package controlplane

import (
	"bytes"
	"context"
	_ "embed" // for setup.yaml
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
)

//go:embed setup.yaml
var setupManifest string

// maxAnswer bounds the answers that this package reads for itself.
const maxAnswer = 1 << 20

// setUp creates namespaces and rights in an empty cluster and waits until they hold.
func (cp *ControlPlane) setUp(ctx context.Context) error {
	if _, err := cp.Kubectl(ctx, setupManifest, "create", "--validate=false", "-f", "-"); err != nil {
		return fmt.Errorf("create namespaces and roles: %w", err)
	}
	for _, of := range []struct{ what, user, path string }{
		// The API server makes this one by itself, a moment after it is ready.
		{"namespace default", Admin, "/api/v1/namespaces/default"},
		// Rights hold once the authorizer's informers have seen them.
		{"alice's rights", Alice, "/api/v1/namespaces/" + TeamA + "/pods?limit=1"},
		{"the feed's rights", Feed, "/api/v1/pods?limit=1"},
	} {
		if err := cp.first.process.await(ctx, of.what, func(ctx context.Context) error {
			return cp.request(ctx, of.user, http.MethodGet, of.path, nil)
		}); err != nil {
			return err
		}
	}
	return nil
}

// request sends one request to the API server as a user. An answer other than 2xx is an error.
func (cp *ControlPlane) request(ctx context.Context, user, method, path string, body any) error {
	client, err := rest.HTTPClientFor(cp.RESTConfig(user))
	if err != nil {
		return err
	}
	_, err = send(ctx, client, method, cp.URL()+path, body)
	return err
}

// send sends one JSON request and returns the body of a 2xx answer.
func send(ctx context.Context, client *http.Client, method, target string, body any) ([]byte, error) {
	var payload io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, payload)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("HTTP %d: %s", resp.StatusCode, binaries.Tail(answer))
	}
	return answer, nil
}
