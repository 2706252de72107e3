package forwarding

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// aggregation is an API that another server answers for, who is not there.
const aggregation = `{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.elsewhere.example"},
	"spec": {"group": "elsewhere.example", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 1, "insecureSkipTLSVerify": true,
	"service": {"namespace": "default", "name": "none"}}}`

// gadgets are a custom resource, of which a list comes from memory only after a quarantine.
const gadgets = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gadgets.elsewhere.test"},
	"spec": {"group": "elsewhere.test", "scope": "Namespaced", "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
	"versions": [{"name": "v1", "served": true, "storage": true,
	"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`

// bearer makes a call with a token.
func bearer(token, path string) call {
	return call{user: controlplane.Anonymous, path: path, header: http.Header{"Authorization": {"Bearer " + token}}}
}

// TestMadeUpTokensLearnNothing: listproxy tells somebody whom kube-apiserver refuses no more of the
// cluster, of the policy and of memory than kube-apiserver does.
func TestMadeUpTokensLearnNothing(t *testing.T) {
	for object, path := range map[string]string{
		aggregation: "/apis/apiregistration.k8s.io/v1/apiservices/v1.elsewhere.example",
		gadgets:     "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.elsewhere.test",
	} {
		expect.NoError(t, cp.Apply(t.Context(), object))
		defer func() {
			if gone := direct.do(t, call{method: http.MethodDelete, path: path}); gone.Status != http.StatusOK {
				t.Errorf("%s: %d", path, gone.Status)
			}
		}()
	}
	const unasked = "" // nobody has asked for it before
	for path, known := range map[string]string{
		"/api/v1/limitranges?resourceVersion=0":                             unasked,
		"/api/v1/pods?resourceVersion=0":                                    "any",
		"/api/v1/pods?resourceVersionMatch=Exact&resourceVersion=1":         "history",
		"/api/v1/secrets?resourceVersion=0":                                 "not-cached",
		"/api/v1/no-such-things?resourceVersion=0":                          "unknown-resource",
		"/apis/apps/v9/deployments?resourceVersion=0":                       "unknown-resource",
		"/apis/authentication.k8s.io/v1/tokenreviews?resourceVersion=0":     "unknown-resource",
		"/apis/elsewhere.test/v1/gadgets?resourceVersion=0":                 "any",
		"/apis/no.such.group/v1/things?resourceVersion=0":                   "unknown-resource",
		"/apis/elsewhere.example/v1/things?resourceVersion=0":               "unknown-resource",
		"/api/v1/namespaces/no-such-namespace/configmaps?resourceVersion=0": "any",
	} {
		eachDoor(t, func(t *testing.T, d *door) {
			// What it would tell, to whom kube-apiserver has accepted.
			said := ""
			if known != unasked && !poll.Came(t, patience, func() bool {
				said = d.do(t, call{path: path}).cacheStatus
				return strings.HasSuffix(said, "detail="+known)
			}) {
				t.Fatalf("%s as admin: %s", path, said)
			}
			for _, token := range []string{"of-a-stranger", "a.b.c"} {
				c := bearer(token, path)
				got := d.do(t, c)
				if diff := diff(direct.do(t, c), got); diff != "" {
					t.Errorf("%s (-direct +via):\n%s", path, diff)
				}
				wantRefused(t, got, http.StatusUnauthorized, "unknown-caller")
			}
		})
	}
}

// TestFirstListOfAToken: the first list of a new token comes from memory if its caller may have it,
// also right after listproxy's start, as when a DaemonSet is rolled out. Others are told why not.
func TestFirstListOfAToken(t *testing.T) {
	const agents, atOnce = 100, 20
	ns := newNamespace(t)
	newConfigMap(t, ns, "a", nil)
	expect.NoError(t, cp.GrantAll(t.Context(), controlplane.Grant{
		To: []string{ns + "/agent"}, Namespace: ns, Role: "cluster-admin",
	}))
	path := "/api/v1/namespaces/" + ns + "/configmaps?resourceVersion=0"
	token := func(account string) string {
		token, err := cp.CreateServiceAccountToken(t.Context(), ns, account)
		expect.NoError(t, err)
		return token
	}
	awaitDirect(t, bearer(token("agent"), path), http.StatusOK)
	for range 2 {
		d := startProxy(t, harness.ProxyOptions{Upstream: cp.RESTConfig(controlplane.Feed), Args: []string{"--eager", "configmaps"}})
		var tokens []string
		for range agents {
			tokens = append(tokens, token("agent"))
		}
		var hits atomic.Int64
		var all errgroup.Group
		all.SetLimit(atOnce)
		for _, token := range tokens {
			all.Go(func() error {
				got := d.do(t, bearer(token, path))
				if got.Status != http.StatusOK {
					t.Errorf("status %d: %s", got.Status, got.cacheStatus)
				}
				if strings.Contains(got.cacheStatus, "; hit; ") {
					hits.Add(1)
				}
				return nil
			})
		}
		_ = all.Wait()
		if n := hits.Load(); n < agents*95/100 {
			t.Errorf("%d of %d came from memory", n, agents)
		}
		stranger := token("stranger")
		wantRefused(t, d.do(t, bearer(stranger, path)), http.StatusForbidden, "not-allowed")
		for range 2 { // once reviewed, once remembered
			wantRefused(t, d.do(t, bearer(stranger+"x", path)), http.StatusUnauthorized, "unknown-caller")
		}
	}
}
