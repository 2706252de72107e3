package cluster

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/proxytest"
)

func TestRoutesBeforeTheyAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		f.Answer(http.StatusServiceUnavailable, "list "+apiServicesPath, "watch "+apiServicesPath)
		c := runLookups(t, f)
		if c.DiscoveryReady() {
			t.Error("ready without APIServices")
		}
		expectLookup(t, c, "", "v1", "pods", forwardedAs(reason.Warming))
		expectLookup(t, c, "metrics.k8s.io", "v1beta1", "pods", forwardedAs(reason.Warming))
		f.Answer(0, "list "+apiServicesPath, "watch "+apiServicesPath)
		time.Sleep(time.Minute)
		if !c.DiscoveryReady() {
			t.Error("not ready with APIServices")
		}
		expectLookup(t, c, "", "v1", "pods", foundPods)
	})
}

// TestUnusualRoutes: an aggregated core group is possible, for whoever may do everything; and an
// APIService that makes no sense is taken for another server's.
func TestUnusualRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		f.Collections[apiServicesPath].Objects[0] = apiService("v1", "", someService, 1)
		f.Collections[apiServicesPath].Objects[1] = `{"kind":"APIService","apiVersion":"apiregistration.k8s.io/v1","metadata":{"name":"v1.apps"},"spec":[]}`
		c := runLookups(t, f)
		expectLookup(t, c, "", "v1", "pods", forwardedAs(reason.UnknownResource))
		expectLookup(t, c, "apps", "v1", "deployments", forwardedAs(reason.UnknownResource))
		expectLookup(t, c, "example.com", "v1", "widgets", foundWidgets)
	})
}

// TestWithoutRoutes: where APIServices may not be read, or not be watched, which shows no changes, the core
// group is all there is, and the log says once what to grant.
func TestWithoutRoutes(t *testing.T) {
	list, watch := "list "+apiServicesPath, "watch "+apiServicesPath
	for name, tt := range map[string]struct {
		status int
		of     []string
	}{"forbidden": {403, []string{list, watch}}, "not found": {404, []string{list, watch}}, "lists only": {403, []string{watch}}} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			f := newFakeCluster(t)
			f.Collections[leasesPath] = newFakeServers().Collections[leasesPath]
			f.Answer(tt.status, tt.of...)
			var logged logbuffer.Buffer
			c := runCluster(t, f, func(snapshot.Invalidation) {}, slog.New(slog.NewTextHandler(&logged, nil)))
			if !c.DiscoveryReady() {
				t.Error("waits for what nobody may grant")
			}
			expectLookup(t, c, "", "v1", "pods", foundPods)
			expectLookup(t, c, "", "v1", "none", forwardedAs(reason.UnknownResource))
			expectLookup(t, c, "", "v2", "pods", forwardedAs(reason.UnknownResource))
			expectLookup(t, c, "apps", "v1", "deployments", forwardedAs(reason.UnknownResource))
			expectLookup(t, c, "none.example.com", "v1", "x", forwardedAs(reason.UnknownResource))
			time.Sleep(time.Hour)
			if got := logged.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "list and watch on apiservices") {
				t.Errorf("want one line that says what to grant, got:\n%s", got)
			}
			f.Answer(0, list, watch)
			time.Sleep(2 * refusedRetry)
			expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
		})
	}
}

// TestRoutesChange: who keeps objects of a group/version must let go of them when another server answers
// for it, or none.
func TestRoutesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		told := &told{}
		c := runCluster(t, f, told.invalidate, proxytest.DiscardLog())
		unavailable := strings.Replace(apiService("v1beta1", "metrics.k8s.io", someService, 2), `,"spec"`,
			`,"status":{"conditions":[{"type":"Available","status":"False"}]},"spec"`, 1)
		f.Document("/apis/new/v1", discoveryOf(t, "new/v1", apiResource("things", "Thing", false, "list", "watch")))
		for _, step := range []struct {
			name, event, object string
			of, what            string
		}{
			{"the first list", "BOOKMARK", apiService("v1", "apps", "", 1), "", ""},
			{"a condition", "MODIFIED", unavailable, "", ""},
			{"a new one", "ADDED", apiService("v1", "new", "", 2), "", ""},
			{"to another server", "MODIFIED", apiService("v1", "apps", someService, 3), "apps", "kube-apiserver to Service kube-system/metrics-server:443"},
			{"and back", "MODIFIED", apiService("v1", "apps", "", 4), "apps", "Service kube-system/metrics-server:443 to kube-apiserver"},
			{"gone", "DELETED", apiService("v1", "example.com", "", 5), "example.com", "kube-apiserver, by definitions to none"},
		} {
			f.Event(apiServicesPath, step.event, step.object)
			var want []string
			if step.of != "" {
				want = append(want, invalidated(snapshot.Invalidation{
					Cause: snapshot.Catalog, Scope: snapshot.OfVersion(schema.GroupVersion{Group: step.of, Version: "v1"}),
					Until: snapshot.For(snapshot.Skew), What: step.what,
				}))
			}
			if diff := cmp.Diff(want, told.take()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step.name, diff)
			}
			apps := foundDeployments
			if step.name == "to another server" {
				apps = forwardedAs(reason.UnknownResource)
			}
			expectLookup(t, c, "apps", "v1", "deployments", apps)
		}
		expectLookup(t, c, "example.com", "v1", "widgets", forwardedAs(reason.UnknownResource))
		expectLookup(t, c, "new", "v1", "things", found{Entry: Entry{}})
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
		expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
		time.Sleep(time.Second)
		expectLookup(t, c, "apps", "v1", "deployments", forwardedAs(reason.Warming))
		expectLookup(t, c, "metrics.k8s.io", "v1beta1", "pods", forwardedAs(reason.UnknownResource))
		expectLookup(t, c, "", "v1", "pods", foundPods)

		f.Hold(apiServicesPath, apiService("v1", "", "", 1), apiService("v1", "apps", someService, 1))
		f.Answer(0, "list "+apiServicesPath, "watch "+apiServicesPath)
		time.Sleep(time.Minute)
		expectLookup(t, c, "apps", "v1", "deployments", forwardedAs(reason.UnknownResource))
	})
}

// TestWhoAnswers: what kind of resources a group/version has is said by the API server's own label.
// Without it nobody knows, and they are left alone.
func TestWhoAnswers(t *testing.T) {
	for _, tt := range []struct {
		label   string
		service any
		want    route
	}{
		{"onstart", nil, route{}},
		{"true", nil, route{custom: true}},
		{"", nil, route{aggregated: true}},
		{"other", nil, route{aggregated: true}},
		{"onstart", map[string]any{}, route{aggregated: true}},
		{"true", map[string]any{}, route{aggregated: true, custom: true}},
		{"", map[string]any{"namespace": "ns", "name": "n", "port": int64(443)}, route{aggregated: true, service: "ns/n:443"}},
	} {
		got, err := readAPIService(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "v1.a.b", "labels": map[string]any{automanaged: tt.label}},
			"spec":     map[string]any{"service": tt.service},
		}})
		if err != nil || got != tt.want {
			t.Errorf("label %q, service %v: %+v, %v, want %+v", tt.label, tt.service, got, err, tt.want)
		}
	}
}
