package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestWithoutRoutes: where APIServices may not be read, or not be watched, which shows no changes, the core
// group is all there is. While it is not known whether they may be, nothing is there.
func TestWithoutRoutes(t *testing.T) {
	list, watch := "list "+apiServicesPath, "watch "+apiServicesPath
	for name, tt := range map[string]struct {
		status int
		of     []string
		core   found
	}{
		"forbidden":  {403, []string{list, watch}, foundPods},
		"not found":  {404, []string{list, watch}, foundPods},
		"lists only": {403, []string{watch}, foundPods},
		"not yet":    {503, []string{list, watch}, forwardedAs(reason.Warming)},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			f := newFakeCluster(t)
			f.Answer(tt.status, tt.of...)
			c := runLookups(t, f)
			expectLookup(t, c, " v1 pods", tt.core)
			known := tt.core == foundPods
			if c.DiscoveryReady() != known {
				t.Errorf("ready: %t", c.DiscoveryReady())
			}
			if known {
				for _, resource := range []string{" v1 none", " v2 pods", "apps v1 deployments", "none.example.com v1 x"} {
					expectLookup(t, c, resource, forwardedAs(reason.UnknownResource))
				}
			} else {
				expectLookup(t, c, "metrics.k8s.io v1beta1 pods", forwardedAs(reason.Warming))
			}
			f.Answer(0, list, watch)
			time.Sleep(2 * refusedRetry)
			expectLookup(t, c, "apps v1 deployments", foundDeployments)
			expectLookup(t, c, " v1 pods", foundPods)
		})
	}
}

// TestRoutesChange: who keeps objects of a group/version must let go of them when another server answers
// for it, or none.
func TestRoutesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		told := &told{}
		c := runCluster(t, f, told.invalidate)
		unavailable := strings.Replace(proxytest.APIService("v1beta1", "metrics.k8s.io", someService, 2), `,"spec"`,
			`,"status":{"conditions":[{"type":"Available","status":"False"}]},"spec"`, 1)
		f.Document("/apis/new/v1", discoveryOf(t, "new/v1", apiResource("things", "Thing", false, "list", "watch")))
		for _, step := range []struct {
			name, event, object string
			of, what            string
		}{
			{name: "the first list", event: "BOOKMARK", object: proxytest.APIService("v1", "apps", "", 1)},
			{name: "a condition", event: "MODIFIED", object: unavailable},
			{name: "a new one", event: "ADDED", object: proxytest.APIService("v1", "new", "", 2)},
			{
				name: "to another server", event: "MODIFIED", object: proxytest.APIService("v1", "apps", someService, 3),
				of: "apps", what: "kube-apiserver to another server",
			},
			{
				name: "and back", event: "MODIFIED", object: proxytest.APIService("v1", "apps", "", 4), of: "apps",
				what: "another server to kube-apiserver",
			},
			{
				name: "the core group", event: "MODIFIED", object: proxytest.APIService("v1", "", someService, 5),
				what: "kube-apiserver to another server",
			},
			{
				name: "gone", event: "DELETED", object: proxytest.APIService("v1", "example.com", "", 5), of: "example.com",
				what: "kube-apiserver, by definitions to none",
			},
		} {
			f.Event(apiServicesPath, step.event, step.object)
			var want []string
			if step.what != "" {
				want = append(want, invalidated(snapshot.Invalidation{
					Cause: snapshot.Catalog, Scope: snapshot.OfVersion(schema.GroupVersion{Group: step.of, Version: "v1"}),
					Until: snapshot.For(snapshot.Skew), What: step.what,
				}))
			}
			told.expect(t, step.name, want...)
			apps := foundDeployments
			if step.name == "to another server" {
				apps = forwardedAs(reason.UnknownResource)
			}
			expectLookup(t, c, "apps v1 deployments", apps)
		}
		expectLookup(t, c, " v1 pods", forwardedAs(reason.UnknownResource))
		expectLookup(t, c, "example.com v1 widgets", forwardedAs(reason.UnknownResource))
		expectLookup(t, c, "new v1 things", found{Entry: Entry{}})
	})
}

// TestRoutesWithoutTheirStream are believed for a while, not for ever. The core group is the API server's
// own, as far as anybody knows.
func TestRoutesWithoutTheirStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		c := runLookups(t, f)
		f.Answer(http.StatusServiceUnavailable, "list "+apiServicesPath, "watch "+apiServicesPath)
		f.Cut(apiServicesPath)
		time.Sleep(snapshot.Skew)
		expectLookup(t, c, "apps v1 deployments", foundDeployments)
		time.Sleep(time.Second)
		expectLookup(t, c, "apps v1 deployments", forwardedAs(reason.Warming))
		expectLookup(t, c, "metrics.k8s.io v1beta1 pods", forwardedAs(reason.UnknownResource))
		expectLookup(t, c, " v1 pods", foundPods)

		f.Hold(apiServicesPath, proxytest.APIService("v1", "", "", 1), proxytest.APIService("v1", "apps", someService, 1))
		f.Answer(0, "list "+apiServicesPath, "watch "+apiServicesPath)
		time.Sleep(time.Minute)
		expectLookup(t, c, "apps v1 deployments", forwardedAs(reason.UnknownResource))
	})
}

// TestWhoAnswers: what kind of resources a group/version has is said by the API server's own label.
// Without it nobody knows, and they are left alone.
func TestWhoAnswers(t *testing.T) {
	for _, tt := range []struct {
		label, spec string
		want        route
	}{
		{"onstart", `{"service":null}`, route{}},
		{"true", `{}`, route{custom: true}},
		{"", `{}`, route{aggregated: true}},
		{"other", `{}`, route{aggregated: true}},
		{"onstart", `{"service":{}}`, route{aggregated: true}},
		{"true", `{"service":{}}`, route{aggregated: true, custom: true}},
	} {
		var o object
		expect.NoError(t, json.Unmarshal(fmt.Appendf(nil, `{"metadata":{"name":"v1.a.b","labels":{%q:%q}},"spec":%s}`, automanaged, tt.label, tt.spec), &o))
		if got := readAPIService(&o); got != tt.want {
			t.Errorf("label %q, spec %s: %+v, want %+v", tt.label, tt.spec, got, tt.want)
		}
	}
}
