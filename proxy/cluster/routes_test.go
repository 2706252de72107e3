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
		status   int
		refused  []string // requests, with the status
		wantCore found
	}{
		"forbidden":  {status: 403, refused: []string{list, watch}, wantCore: foundPods},
		"not found":  {status: 404, refused: []string{list, watch}, wantCore: foundPods},
		"lists only": {status: 403, refused: []string{watch}, wantCore: foundPods},
		"not yet":    {status: 503, refused: []string{list, watch}, wantCore: forwardedAs(reason.Warming)},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			f := newFakeCluster(t)
			f.SetStatus(tt.status, tt.refused...)
			c := runLookups(t, f)
			expectLookup(t, c, " v1 pods", tt.wantCore)
			known := tt.wantCore == foundPods
			if c.DiscoveryReady() != known {
				t.Errorf("discovery is ready: %t, want %t", c.DiscoveryReady(), known)
			}
			if known {
				for _, resource := range []string{" v1 none", " v2 pods", "apps v1 deployments", "none.example.com v1 x"} {
					expectLookup(t, c, resource, forwardedAs(reason.UnknownResource))
				}
			} else {
				expectLookup(t, c, "metrics.k8s.io v1beta1 pods", forwardedAs(reason.Warming))
			}
			f.SetStatus(0, list, watch)
			time.Sleep(2 * maxRefusedPause)
			expectLookup(t, c, "apps v1 deployments", foundDeployments)
			expectLookup(t, c, " v1 pods", foundPods)
		})
	}
}

// TestRoutesChange: the objects of a group/version are invalidated when another server answers for it, or none.
func TestRoutesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		told := &told{}
		c := runCluster(t, f, told.invalidate)
		unavailable := strings.Replace(proxytest.APIService("v1beta1", "metrics.k8s.io", someService, 2), `,"spec"`,
			`,"status":{"conditions":[{"type":"Available","status":"False"}]},"spec"`, 1)
		f.SetDocument("/apis/new/v1", discoveryOf(t, "new/v1", apiResource("things", "Thing", false, "list", "watch")))
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
				what: "kube-apiserver (custom resources) to none",
			},
		} {
			f.Event(apiServicesPath, step.event, step.object)
			var want []string
			if step.what != "" {
				want = append(want, invalidated(snapshot.Invalidation{
					Cause: snapshot.CauseCatalog, Scope: snapshot.OfVersion(schema.GroupVersion{Group: step.of, Version: "v1"}),
					What: step.what,
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

// TestRoutesWithoutTheirStream: without their stream routes are believed for a while, not for ever, but for the core
// group's, which is the API server's own.
func TestRoutesWithoutTheirStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		c := runLookups(t, f)
		f.SetStatus(http.StatusServiceUnavailable, "list "+apiServicesPath, "watch "+apiServicesPath)
		f.Cut(apiServicesPath)
		time.Sleep(snapshot.Skew)
		expectLookup(t, c, "apps v1 deployments", foundDeployments)
		time.Sleep(time.Second)
		expectLookup(t, c, "apps v1 deployments", forwardedAs(reason.Warming))
		expectLookup(t, c, "metrics.k8s.io v1beta1 pods", forwardedAs(reason.UnknownResource))
		expectLookup(t, c, " v1 pods", foundPods)

		f.SetObjects(apiServicesPath, proxytest.APIService("v1", "", "", 1), proxytest.APIService("v1", "apps", someService, 1))
		f.SetStatus(0, "list "+apiServicesPath, "watch "+apiServicesPath)
		time.Sleep(time.Minute)
		expectLookup(t, c, "apps v1 deployments", forwardedAs(reason.UnknownResource))
	})
}

// TestWhoAnswers: the API server's own label says which kind of resources a group/version has. Without it they count as
// another server's.
func TestWhoAnswers(t *testing.T) {
	for _, tt := range []struct {
		label, spec string
		want        route
	}{
		{label: "onstart", spec: `{"service":null}`, want: routeBuiltin},
		{label: "true", spec: `{}`, want: routeCustom},
		{spec: `{}`, want: routeAggregated},
		{label: "other", spec: `{}`, want: routeAggregated},
		{label: "onstart", spec: `{"service":{}}`, want: routeAggregated},
		{label: "true", spec: `{"service":{}}`, want: routeAggregated},
	} {
		var o object
		const apiService = `{"metadata":{"name":"v1.a.b","labels":{%q:%q}},"spec":%s}`
		expect.NoError(t, json.Unmarshal(fmt.Appendf(nil, apiService, automanaged, tt.label, tt.spec), &o))
		if got := readAPIService(&o); got != tt.want {
			t.Errorf("label %q, spec %s: %+v, want %+v", tt.label, tt.spec, got, tt.want)
		}
	}
}
