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

// setUp creates namespaces and rights in an empty cluster, and waits until they are in force.
func (cp *ControlPlane) setUp(ctx context.Context) error {
	if _, err := cp.Kubectl(ctx, setupManifest, "create", "--validate=false", "-f", "-"); err != nil {
		return fmt.Errorf("create namespaces and roles: %w", err)
	}
	for _, check := range []struct{ name, user, path string }{
		// kube-apiserver creates this namespace by itself, a moment after it is ready.
		{name: "namespace default", user: Admin, path: "/api/v1/namespaces/default"},
		// Rights are in force once the authorizer's informers have them.
		{name: "alice's rights", user: Alice, path: "/api/v1/namespaces/" + TeamA + "/pods?limit=1"},
		{name: "the feed's rights", user: Feed, path: "/api/v1/pods?limit=1"},
	} {
		if err := cp.First.process.await(ctx, check.name, func(ctx context.Context) error {
			return cp.request(ctx, check.user, http.MethodGet, check.path, nil)
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
