package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestWithoutRoutes: only the core group is found if listproxy may not list or watch APIServices. Nothing is found while
// kube-apiserver is unavailable (503).
func TestWithoutRoutes(t *testing.T) {
	lists, watches := "list "+inmemory.APIServices.Path, "watch "+inmemory.APIServices.Path
	unknown, warming := notFound(reason.UnknownResource), notFound(reason.Warming)
	for name, tt := range map[string]struct {
		listStatus           int // of the answers to lists of APIServices; 0: they are answered as usual
		watchStatus          int
		wantRead             bool  // discovery was read
		wantCore, wantOthers found // the results of Lookup for pods, and for other groups, versions and resources
	}{
		"forbidden":          {listStatus: 403, watchStatus: 403, wantRead: true, wantCore: foundNamespaced, wantOthers: unknown},
		"not found":          {listStatus: 404, watchStatus: 404, wantRead: true, wantCore: foundNamespaced, wantOthers: unknown},
		"watches, forbidden": {watchStatus: 403, wantRead: true, wantCore: foundNamespaced, wantOthers: unknown},
		"unavailable":        {listStatus: 503, watchStatus: 503, wantRead: false, wantCore: warming, wantOthers: warming},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			upstream := newFakeCluster(t)
			upstream.SetStatus(tt.listStatus, lists)
			upstream.SetStatus(tt.watchStatus, watches)
			c := runCluster(t, upstream, Config{})
			expect.Same(t, tt.wantRead, c.DiscoveryReady())
			expectLookup(t, c, "core v1 pods", tt.wantCore)
			for _, resource := range []string{
				"core v1 none", "core v2 pods", "apps v1 deployments", "none.example.com v1 x", "metrics.k8s.io v1beta1 pods",
			} {
				expectLookup(t, c, resource, tt.wantOthers)
			}
			upstream.SetStatus(usualAnswers, lists, watches)
			time.Sleep(2 * maxRefusedPause)
			expectLookup(t, c, "apps v1 deployments", foundNamespaced)
			expectLookup(t, c, "core v1 pods", foundNamespaced)
		})
	}
}

// TestRoutesChange: the objects of a group and version are invalidated when another server, or none, answers for it from now
// on. The resources of a group and version are found only while kube-apiserver itself answers.
func TestRoutesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := newFakeCluster(t)
		recorded := &recorder{}
		c := runCluster(t, upstream, Config{Invalidate: recorded.recordInvalidation})
		unavailable := inmemory.APIService("v1beta1", "metrics.k8s.io", someService)
		unavailable.More += `,"status":{"conditions":[{"type":"Available","status":"False"}]}`
		upstream.SetDocument("/apis/new/v1", discoveryOf(t, "new/v1", apiResource("things", "Thing", clusterScoped, "list", "watch")))
		unknown := notFound(reason.UnknownResource)
		for _, step := range []struct {
			name            string
			event           watch.EventType // default: writeEvent
			object          inmemory.Object
			wantInvalidated snapshot.Scope // zero: nothing
			wantDeployments found
		}{
			{name: "a bookmark, which says nothing", event: watch.Bookmark, object: inmemory.APIService("v1", "apps", someService), wantDeployments: foundNamespaced},
			{name: "a condition", object: unavailable, wantDeployments: foundNamespaced},
			{name: "a new group", object: inmemory.APIService("v1", "new", ""), wantDeployments: foundNamespaced},
			{
				name: "deployments to another server", object: inmemory.APIService("v1", "apps", someService),
				wantInvalidated: v1Scope("apps"), wantDeployments: unknown,
			},
			{
				name: "deployments back to kube-apiserver", object: inmemory.APIService("v1", "apps", ""),
				wantInvalidated: v1Scope("apps"), wantDeployments: foundNamespaced,
			},
			{
				name: "the core group to another server", object: inmemory.APIService("v1", "", someService),
				wantInvalidated: v1Scope(""), wantDeployments: foundNamespaced,
			},
			{
				name: "custom resources to no server", event: watch.Deleted, object: inmemory.APIService("v1", "example.com", ""),
				wantInvalidated: v1Scope("example.com"), wantDeployments: foundNamespaced,
			},
		} {
			sendEvent(upstream, inmemory.APIServices, step.event, step.object)
			if step.wantInvalidated == (snapshot.Scope{}) {
				recorded.expectNothing(t, step.name)
			} else {
				recorded.expect(t, step.name, fmt.Sprint(reason.Moved, step.wantInvalidated))
			}
			expectLookup(t, c, "apps v1 deployments", step.wantDeployments)
		}
		expectLookup(t, c, "core v1 pods", unknown)
		expectLookup(t, c, "example.com v1 widgets", unknown)
		expectLookup(t, c, "new v1 things", foundClusterScoped)
	})
}

// TestRoutesWithoutTheirWatch: after the watch of APIServices ends, routes are used for ten seconds (snapshot.Skew). From then
// on, only the core group is found, which is kube-apiserver's in any case. When the watch is back, a route that changed
// meanwhile counts.
func TestRoutesWithoutTheirWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists, watches := "list "+inmemory.APIServices.Path, "watch "+inmemory.APIServices.Path
		upstream := newFakeCluster(t)
		c := runCluster(t, upstream, Config{})
		upstream.SetStatus(http.StatusServiceUnavailable, lists, watches)
		upstream.Cut(inmemory.APIServices.Path)
		time.Sleep(snapshot.Skew)
		expectLookup(t, c, "apps v1 deployments", foundNamespaced)
		time.Sleep(time.Second)
		expectLookup(t, c, "apps v1 deployments", notFound(reason.Warming))
		expectLookup(t, c, "metrics.k8s.io v1beta1 pods", notFound(reason.UnknownResource))
		expectLookup(t, c, "core v1 pods", foundNamespaced)

		upstream.Put(inmemory.APIServices, inmemory.APIService("v1", "apps", someService))
		upstream.SetStatus(usualAnswers, lists, watches)
		time.Sleep(time.Minute)
		expectLookup(t, c, "apps v1 deployments", notFound(reason.UnknownResource))
	})
}

// TestReadAPIService: readAPIService tells built-in from custom groups by the label automanaged. A group without a known label,
// or with a service that answers for it, is aggregated.
func TestReadAPIService(t *testing.T) {
	for name, tt := range map[string]struct {
		label, spec string
		want        route
	}{
		"built in":                        {label: "onstart", spec: `{"service":null}`, want: routeBuiltin},
		"custom resources":                {label: "true", spec: `{}`, want: routeCustom},
		"no label":                        {spec: `{}`, want: routeAggregated},
		"unknown label":                   {label: "other", spec: `{}`, want: routeAggregated},
		"built in, but a service answers": {label: "onstart", spec: `{"service":{}}`, want: routeAggregated},
		"custom resources, but a service answers": {label: "true", spec: `{"service":{}}`, want: routeAggregated},
	} {
		var o object
		const apiService = `{"metadata":{"name":"v1.a.b","labels":{"kube-aggregator.kubernetes.io/automanaged":%q}},"spec":%s}`
		expect.NoError(t, json.Unmarshal(fmt.Appendf(nil, apiService, tt.label, tt.spec), &o))
		if got := readAPIService(&o); got != tt.want {
			t.Errorf("%s: got the route %q, want %q", name, got, tt.want)
		}
	}
}
