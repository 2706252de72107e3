package discovery

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestNoClientFollowsRedirects: listproxy's own credentials are for the upstream only, so nothing
// that is asked with them is asked elsewhere, though the upstream says so.
func TestNoClientFollowsRedirects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var redirected []string
		config := &rest.Config{Host: "https://api.test", BearerToken: "own", Transport: proxytest.Transport(
			func(r *http.Request) (*http.Response, error) {
				if r.URL.Host != "api.test" {
					t.Errorf("%s is asked for %s", r.URL.Host, r.URL.Path)
				}
				mu.Lock()
				defer mu.Unlock()
				what := r.URL.Path
				if slices.Contains(redirected, what) {
					return proxytest.JSONResponse(r, http.StatusForbidden, "{}"), nil // so that what waits for it goes on
				}
				redirected = append(redirected, what)
				answer := proxytest.JSONResponse(r, http.StatusFound, "{}")
				answer.Header.Set("Location", "https://elsewhere.test"+r.URL.Path)
				return answer, nil
			})}
		log := proxytest.DiscardLog()
		cluster, err := New(config, Config{Invalidate: func(snapshot.Invalidation) {}, Verify: func(string) {}, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		proxytest.RunInBubble(t, cluster.Run)
		proxytest.RunInBubble(t, func(ctx context.Context) {
			if err := WatchRBAC(ctx, config, func() {}, log); err != nil {
				t.Errorf("WatchRBAC: %v", err)
			}
		})
		time.Sleep(time.Minute)
		expectLookup(t, cluster.Catalog, "", "v1", "pods", forwardedAs("warming"))
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(redirected)
		if diff := cmp.Diff([]string{
			"/api/v1",
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			"/apis/apiregistration.k8s.io/v1/apiservices",
			"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
			"/apis/internal.apiserver.k8s.io/v1alpha1/storageversions",
			"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
			"/apis/rbac.authorization.k8s.io/v1/clusterroles",
			"/apis/rbac.authorization.k8s.io/v1/rolebindings",
			"/apis/rbac.authorization.k8s.io/v1/roles",
			"/version",
		}, redirected); diff != "" {
			t.Errorf("redirected (-want +got):\n%s", diff)
		}
	})
}
