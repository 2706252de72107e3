package controlplane

import (
	"context"
	_ "embed" // for setup.yaml
	"fmt"
	"net/http"

	"github.com/listproxy/listproxy/test/harness/ask"
)

//go:embed setup.yaml
var setupManifest string

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
		if err := cp.First.process.await(ctx, of.what, func(ctx context.Context) error {
			return cp.request(ctx, of.user, http.MethodGet, of.path, nil)
		}); err != nil {
			return err
		}
	}
	return nil
}

// request sends one request to the API server as a user. An answer other than 2xx is an error.
func (cp *ControlPlane) request(ctx context.Context, user, method, path string, body any) error {
	client, err := ask.New(cp.RESTConfig(user), 0)
	if err != nil {
		return err
	}
	_, err = client.Do(ctx, method, path, body)
	return err
}
