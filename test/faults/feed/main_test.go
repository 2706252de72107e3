package feed

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// atOnce is how many tests run at the same time, unless -parallel says: they mostly wait.
const atOnce = 6

// shared is the control plane of all tests that do not stop, restart or restore theirs.
var shared *cluster

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{Parallel: atOnce, SetUp: func(s *harness.Suite) (err error) {
		shared, err = startCluster(s.Context())
		if err == nil {
			s.Cleanup(func() error { shared.Stop(); return nil })
		}
		return err
	}})
}

// cluster is a control plane, and a client of its API server that goes there directly.
type cluster struct {
	*controlplane.ControlPlane
	direct *ask.Client
}

// startCluster starts a control plane that knows the custom resources of these tests.
func startCluster(ctx context.Context, apiServerArgs ...string) (*cluster, error) {
	cp, err := controlplane.Start(ctx, controlplane.Options{Log: harness.Log, APIServerArgs: apiServerArgs})
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: cp}
	if c.direct, err = ask.New(cp.RESTConfig(controlplane.Admin), patience); err == nil {
		err = c.defineKinds(ctx)
	}
	if err != nil {
		cp.Stop()
		return nil, err
	}
	return c, nil
}

// defineKinds creates the custom resources and waits until they are served.
func (c *cluster) defineKinds(ctx context.Context) error {
	for k, definition := range definitions() {
		if _, err := c.direct.Do(ctx, http.MethodPost, kinds.Definitions, definition); err != nil {
			return fmt.Errorf("define %s: %w", k.Plural, err)
		}
	}
	for k := range definitions() {
		if err := c.served(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// served waits until the API server serves a resource.
func (c *cluster) served(ctx context.Context, k kind) error {
	return poll.Retry(ctx, k.Plural+" to be served", func() error {
		_, err := c.direct.Do(ctx, http.MethodGet, k.Path(""), nil)
		return err
	})
}

// define adds a custom resource, and waits until it is served.
func (c *cluster) define(t *testing.T, k kind, versions ...any) {
	t.Helper()
	c.write(t, http.MethodPost, kinds.Definitions, k.Definition(versions...))
	expect.NoError(t, c.served(t.Context(), k))
}

// ownCluster starts a control plane for one test, which may do with it what it likes.
func ownCluster(t *testing.T, apiServerArgs ...string) *cluster {
	t.Helper()
	c, err := startCluster(t.Context(), apiServerArgs...)
	expect.NoError(t, err)
	t.Cleanup(c.Stop)
	return c
}
