package differential_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestNewestAsAny: whom the policy names gets a state that is as new as --staleness-bound for the
// newest one, with kube-apiserver's bytes of that state, page by page too. Everybody else gets the
// newest state, by whichever credentials they come.
func TestNewestAsAny(t *testing.T) {
	const poller = controlplane.Alice
	given := map[string]string{"": "listproxy; fwd=bypass; detail=most-recent", poller: "listproxy; hit; detail=any; newest-as-any"}
	config := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(config, []byte("{apiVersion: listproxy.io/v1alpha1, kind: Policy, resources: "+
		"[{group: '', resource: pods, newestAsAny: [{user: "+poller+"}]}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := feedHop(t)
	h.OnDelay(func(*http.Request) time.Duration { return lagging })
	report := differential.NewReport()
	c := differential.NewComparator(shared.Cluster, startBehind(t, h, "pods", "--config", config), report,
		differential.Options{Bound: differential.HealthyBound, AsAny: poller})
	pods, namespace := resource(t, "pods"), shared.Namespaces[0]
	for _, user := range shared.Users() {
		if !user.Lists(pods, namespace) {
			continue
		}
		want := given[""]
		if user.Name == poller || user.Name == poller+" by certificate" {
			want = given[poller]
		}
		poll.Until(t, patience, user.Name+": "+want, func() bool {
			answer, err := c.ProxyAnswer(t.Context(), pods, namespace, user, nil)
			return err == nil && answer.Header.Get("Cache-Status") == want
		})
	}
	admin, alice := user(t, controlplane.Admin), user(t, poller)
	older := 0
	for range 10 {
		written := touch(t, pods)
		c.Compare(t.Context(), pods, namespace, alice, url.Values{}, http.Header{})
		c.Compare(t.Context(), pods, namespace, alice, url.Values{"limit": {"2"}}, http.Header{})
		c.Compare(t.Context(), pods, namespace, admin, url.Values{}, http.Header{})
		if revision, _ := page(t, c, pods, namespace, alice, url.Values{}); revision < written {
			older++
		}
	}
	if older == 0 {
		t.Error("nothing that was given for the newest state was older")
	}
	first, token := page(t, c, pods, namespace, alice, url.Values{"limit": {"1"}})
	next := url.Values{"limit": {"1"}, "continue": {token}}
	if second, _ := page(t, c, pods, namespace, alice, next); second != first {
		t.Errorf("the second page is of revision %d, the first of %d", second, first)
	}
	c.Compare(t.Context(), pods, namespace, alice, next, http.Header{})
	finish(t, report)
}

// page asks listproxy for a page, and returns its revision and the token of the next.
func page(t *testing.T, c *differential.Comparator, r cluster.Resource, namespace string, user cluster.User, query url.Values) (uint64, string) {
	t.Helper()
	answer, err := c.ProxyAnswer(t.Context(), r, namespace, user, query)
	if err != nil || answer.Status != http.StatusOK {
		t.Fatalf("%d %s, %v", answer.Status, answer.Body, err)
	}
	meta, err := body.ListMeta(answer.Body)
	harness.Must(t, err)
	revision, err := body.RevisionOf(meta)
	harness.Must(t, err)
	return revision, meta.Continue
}

// user returns who asks by name.
func user(t *testing.T, name string) cluster.User {
	t.Helper()
	for _, u := range shared.Users() {
		if u.Name == name {
			return u
		}
	}
	t.Fatalf("no user %q", name)
	return cluster.User{}
}
