package controlplane

import (
	"bytes"
	"context"
	_ "embed" // for setup.yaml
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/harness/secrets"
)

//go:embed setup.yaml
var setupManifest []byte

// maxAnswer bounds the answers that this package reads for itself.
const maxAnswer = 1 << 20

// setUp creates namespaces and rights in an empty cluster and waits until they hold.
func (cp *ControlPlane) setUp(ctx context.Context) error {
	if _, err := cp.kubectl(ctx, Admin, setupManifest, "create", "--validate=false", "-f", "-"); err != nil {
		return fmt.Errorf("create namespaces and roles: %w", err)
	}
	// The API server makes this one by itself, a moment after it is ready.
	err := cp.awaitGet(ctx, "namespace default", Admin, "/api/v1/namespaces/default")
	if err != nil {
		return err
	}
	// Rights hold once the authorizer's informers have seen them.
	err = cp.awaitGet(ctx, "alice's rights", Alice, "/api/v1/namespaces/"+TeamA+"/pods?limit=1")
	if err != nil {
		return err
	}
	return cp.awaitGet(ctx, "the feed's rights", Feed, "/api/v1/pods?limit=1")
}

// awaitGet waits until a GET as the user succeeds.
func (cp *ControlPlane) awaitGet(ctx context.Context, what, user, path string) error {
	return cp.apiserver.await(ctx, what, func(ctx context.Context) error {
		_, err := cp.request(ctx, user, http.MethodGet, path, nil)
		return err
	})
}

// A statusError is an answer of the API server or of etcd other than 2xx.
type statusError struct {
	code int
	body []byte
}

func (e *statusError) Error() string {
	return fmt.Sprintf("HTTP %d: %s", e.code, binaries.Tail(e.body))
}

// request sends one request to the API server as a user and returns the body of a 2xx answer.
func (cp *ControlPlane) request(ctx context.Context, user, method, path string, body any) ([]byte, error) {
	client, err := rest.HTTPClientFor(cp.RESTConfig(user))
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", user, err)
	}
	return send(ctx, client, method, cp.URL()+path, body)
}

// send sends one JSON request and returns the body of a 2xx answer.
func send(ctx context.Context, client *http.Client, method, target string, body any) ([]byte, error) {
	var payload io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		payload = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, payload)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, &statusError{code: resp.StatusCode, body: answer}
	}
	return answer, nil
}

// CreateServiceAccountToken creates a service account, unless it exists, and returns a token
// for it from the TokenRequest API, valid for an hour. The namespace must exist; binding
// rights to the account is the caller's part.
func (cp *ControlPlane) CreateServiceAccountToken(ctx context.Context, namespace, name string) (string, error) {
	accounts := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/serviceaccounts"
	_, err := cp.request(ctx, Admin, http.MethodPost, accounts, map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": name},
	})
	var status *statusError
	if err != nil && (!errors.As(err, &status) || status.code != http.StatusConflict) {
		return "", fmt.Errorf("create service account %s/%s: %w", namespace, name, err)
	}
	answer, err := cp.request(ctx, Admin, http.MethodPost, accounts+"/"+url.PathEscape(name)+"/token", map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"spec": map[string]any{"expirationSeconds": 3600},
	})
	if err != nil {
		return "", fmt.Errorf("request a token of service account %s/%s: %w", namespace, name, err)
	}
	var token struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	if err := json.Unmarshal(answer, &token); err != nil {
		return "", fmt.Errorf("decode the token of service account %s/%s: %w", namespace, name, err)
	}
	secrets.Suite.Add("the token of service account "+namespace+"/"+name, token.Status.Token)
	return token.Status.Token, nil
}
