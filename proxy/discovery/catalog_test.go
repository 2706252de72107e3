package discovery

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/proxytest"
)

const apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices"

// apiService returns an APIService; service is JSON, empty for none.
func apiService(version, group, service string, revision int) string {
	if service != "" {
		service = `,"service":` + service
	}
	managed := "onstart"
	if strings.HasSuffix(group, "example.com") {
		managed = "true" // by CustomResourceDefinitions
	}
	return fmt.Sprintf(`{"kind":"APIService","apiVersion":"apiregistration.k8s.io/v1",`+
		`"metadata":{"name":"%s.%s","resourceVersion":"%d","labels":{%q:%q}},"spec":{"group":%q,"version":%q%s}}`,
		version, group, revision, automanaged, managed, group, version, service)
}

const someService = `{"namespace":"kube-system","name":"metrics-server","port":443}`

// discoveryOf returns what discovery says of a group/version.
func discoveryOf(t *testing.T, groupVersion string, resources ...metav1.APIResource) string {
	t.Helper()
	document, err := json.Marshal(metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: groupVersion,
		APIResources: resources,
	})
	expect.NoError(t, err)
	return string(document)
}

func apiResource(name, kind string, namespaced bool, verbs ...string) metav1.APIResource {
	return metav1.APIResource{Name: name, Kind: kind, Namespaced: namespaced, Verbs: verbs}
}

// newFakeCluster is an API server with some APIs of its own, a custom resource
// and an aggregated API.
func newFakeCluster(t *testing.T) *proxytest.FakeAPI {
	t.Helper()
	f := proxytest.NewFakeAPI()
	f.Collections[apiServicesPath] = &proxytest.FakeCollection{Kind: "APIServiceList", Objects: []string{
		apiService("v1", "", "", 1),
		apiService("v1", "apps", "null", 1),
		apiService("v1", "example.com", "", 1),
		apiService("v1beta1", "metrics.k8s.io", someService, 1),
		apiService("v1", "empty.example.com", "{}", 1),
	}}
	f.Document("/api/v1", discoveryOf(t, "v1",
		apiResource("pods", "Pod", true, "create", "delete", "get", "list", "watch"),
		apiResource("pods/status", "Pod", true, "get", "list", "watch"),
		apiResource("nodes", "Node", false, "get", "list", "watch"),
		apiResource("bindings", "Binding", true, "create"),
		apiResource("componentstatuses", "ComponentStatus", false, "get", "list"),
		apiResource("streams", "Stream", false, "watch"),
	))
	f.Document("/apis/apps/v1", discoveryOf(t, "apps/v1", apiResource("deployments", "Deployment", true, "list", "watch")))
	f.Document("/apis/example.com/v1", discoveryOf(t, "example.com/v1", apiResource("widgets", "Widget", true, "list", "watch")))
	// Aggregated APIs have discovery like any other.
	f.Document("/apis/metrics.k8s.io/v1beta1", discoveryOf(t, "metrics.k8s.io/v1beta1", apiResource("pods", "PodMetrics", true, "list", "watch")))
	return f
}

// runCatalog runs a catalog of f in the bubble.
func runCatalog(t *testing.T, f *proxytest.FakeAPI, log *slog.Logger) *Catalog {
	t.Helper()
	c, err := newCatalog(f.Config(), Config{Log: log}, func() bool { return true }, func(schema.GroupVersion, string) {})
	if err != nil {
		t.Fatalf("NewCatalog: %v", err)
	}
	proxytest.RunInBubble(t, c.run)
	return c
}

// found is the outcome of a lookup.
type found struct {
	Entry  Entry
	Reason reason.Reason
}

func expectLookup(t *testing.T, c *Catalog, group, version, resource string, want found) {
	t.Helper()
	entry, reason := c.Lookup(t.Context(), group, version, resource)
	if diff := cmp.Diff(want, found{entry, reason}); diff != "" {
		t.Errorf("%s %s %s (-want +got):\n%s", group, version, resource, diff)
	}
}

func forwardedAs(reason reason.Reason) found { return found{Reason: reason} }

var (
	foundPods        = found{Entry: Entry{Namespaced: true}}
	foundDeployments = found{Entry: Entry{Namespaced: true}}
	foundWidgets     = found{Entry: Entry{Namespaced: true, Custom: true}}
)

func TestCatalogLookup(t *testing.T) {
	for _, test := range []struct {
		group, version, resource string
		want                     found
	}{
		{"", "v1", "pods", foundPods},
		{"", "v1", "nodes", found{Entry: Entry{}}},
		{"apps", "v1", "deployments", foundDeployments},
		{"example.com", "v1", "widgets", foundWidgets},
		{"", "v1", "pods/status", forwardedAs(reason.UnknownResource)},
		{"", "v1", "bindings", forwardedAs(reason.UnknownResource)},
		{"", "v1", "componentstatuses", forwardedAs(reason.UnknownResource)},
		{"", "v1", "streams", forwardedAs(reason.UnknownResource)},
		{"", "v1", "deployments", forwardedAs(reason.UnknownResource)},
		{"", "v1", "", forwardedAs(reason.UnknownResource)},
		{"", "v2", "pods", forwardedAs(reason.UnknownResource)},
		{"", "", "pods", forwardedAs(reason.UnknownResource)},
		{"apps", "v2", "deployments", forwardedAs(reason.UnknownResource)},
		{"none.example.com", "v1", "widgets", forwardedAs(reason.UnknownResource)},
		{"metrics.k8s.io", "v1beta1", "pods", forwardedAs(reason.UnknownResource)},
		{"metrics.k8s.io", "v1beta1", "none", forwardedAs(reason.UnknownResource)},
		{"empty.example.com", "v1", "none", forwardedAs(reason.UnknownResource)},
	} {
		t.Run(fmt.Sprintf("%s %s %s", test.group, test.version, test.resource), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := runCatalog(t, newFakeCluster(t), proxytest.DiscardLog())
				expectLookup(t, c, test.group, test.version, test.resource, test.want)
			})
		})
	}
}

func TestCatalogBeforeItKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		f.Answer(http.StatusServiceUnavailable, "list "+apiServicesPath, "watch "+apiServicesPath)
		c := runCatalog(t, f, proxytest.DiscardLog())
		if c.Ready() {
			t.Error("ready without APIServices")
		}
		expectLookup(t, c, "", "v1", "pods", forwardedAs(reason.Warming))
		expectLookup(t, c, "metrics.k8s.io", "v1beta1", "pods", forwardedAs(reason.Warming))
		f.Answer(0, "list "+apiServicesPath, "watch "+apiServicesPath)
		time.Sleep(time.Minute)
		if !c.Ready() {
			t.Error("not ready with APIServices")
		}
		expectLookup(t, c, "", "v1", "pods", foundPods)
	})
}

// An aggregated core group is possible, for whoever may do everything.
func TestCatalogOfAnAggregatedCore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		f.Collections[apiServicesPath].Objects[0] = apiService("v1", "", someService, 1)
		c := runCatalog(t, f, proxytest.DiscardLog())
		expectLookup(t, c, "", "v1", "pods", forwardedAs(reason.UnknownResource))
	})
}

// An APIService that makes no sense is taken for another server's.
func TestCatalogOfAnUnreadableAPIService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		f.Collections[apiServicesPath].Objects[1] = `{"kind":"APIService","apiVersion":"apiregistration.k8s.io/v1","metadata":{"name":"v1.apps"},"spec":[]}`
		c := runCatalog(t, f, proxytest.DiscardLog())
		expectLookup(t, c, "apps", "v1", "deployments", forwardedAs(reason.UnknownResource))
		expectLookup(t, c, "", "v1", "pods", foundPods)
	})
}

func TestCatalogWithoutAPIServices(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeCluster(t)
				f.Answer(status, "list "+apiServicesPath, "watch "+apiServicesPath)
				var logged logbuffer.Buffer
				c := runCatalog(t, f, slog.New(slog.NewTextHandler(&logged, nil)))
				if !c.Ready() {
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
				f.Answer(0, "list "+apiServicesPath, "watch "+apiServicesPath)
				time.Sleep(2 * refusedRetry)
				expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
			})
		})
	}
}

// A right to list only shows no changes, so it is not enough.
func TestCatalogThatMayNotWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		f.Answer(http.StatusForbidden, "watch "+apiServicesPath)
		c := runCatalog(t, f, proxytest.DiscardLog())
		expectLookup(t, c, "apps", "v1", "deployments", forwardedAs(reason.UnknownResource))
		expectLookup(t, c, "", "v1", "pods", foundPods)
	})
}

func TestCatalogFollowsAPIServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		c := runCatalog(t, f, proxytest.DiscardLog())
		expectLookup(t, c, "example.com", "v1", "widgets", foundWidgets)

		f.Event(apiServicesPath, "MODIFIED", apiService("v1", "example.com", someService, 2))
		expectLookup(t, c, "example.com", "v1", "widgets", forwardedAs(reason.UnknownResource))

		// What was known from before is not believed any more.
		f.Document("/apis/example.com/v1", discoveryOf(t, "example.com/v1", apiResource("widgets", "Widget", false, "list", "watch")))
		f.Event(apiServicesPath, "MODIFIED", apiService("v1", "example.com", "", 3))
		expectLookup(t, c, "example.com", "v1", "widgets", found{Entry: Entry{Custom: true}})

		f.Event(apiServicesPath, "DELETED", apiService("v1", "example.com", "", 4))
		expectLookup(t, c, "example.com", "v1", "widgets", forwardedAs(reason.UnknownResource))
		f.Event(apiServicesPath, "ADDED", apiService("v1", "example.com", "", 5))
		expectLookup(t, c, "example.com", "v1", "widgets", found{Entry: Entry{Custom: true}})

		// The others were left alone.
		expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
		if got := f.Asked("get /apis/apps/v1"); got != 1 {
			t.Errorf("apps/v1 was read %d times", got)
		}
	})
}

// APIServices are believed for a while without their stream, not for ever. The core group is the API
// server's own, as far as anybody knows.
func TestCatalogWithoutItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		c := runCatalog(t, f, proxytest.DiscardLog())
		expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
		f.Answer(http.StatusServiceUnavailable, "list "+apiServicesPath, "watch "+apiServicesPath)
		f.Cut(apiServicesPath)
		time.Sleep(snapshot.Skew)
		expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
		time.Sleep(time.Second)
		expectLookup(t, c, "apps", "v1", "deployments", forwardedAs(reason.Warming))
		expectLookup(t, c, "metrics.k8s.io", "v1beta1", "pods", forwardedAs(reason.UnknownResource))
		expectLookup(t, c, "", "v1", "pods", foundPods)

		f.Mu.Lock()
		f.Collections[apiServicesPath].Objects[1] = apiService("v1", "apps", someService, 1)
		f.Mu.Unlock()
		f.Answer(0, "list "+apiServicesPath, "watch "+apiServicesPath)
		time.Sleep(time.Minute)
		expectLookup(t, c, "apps", "v1", "deployments", forwardedAs(reason.UnknownResource))
	})
}

// What callers make up costs neither a request nor memory.
func TestCatalogOfMadeUpGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		c := runCatalog(t, f, proxytest.DiscardLog())
		before := len(f.Requests)
		for n := range 10_000 {
			expectLookup(t, c, fmt.Sprintf("g%d.example.com", n), "v1", "x", forwardedAs(reason.UnknownResource))
			expectLookup(t, c, "", fmt.Sprintf("v%d", n+2), "pods", forwardedAs(reason.UnknownResource))
		}
		if got := len(f.Requests); got != before || len(c.known) != 0 {
			t.Errorf("%d more paths asked for, %d group/versions remembered", got-before, len(c.known))
		}
	})
}

func BenchmarkCatalogLookup(b *testing.B) {
	c := &Catalog{
		apiServices:  reflector[server]{known: map[string]server{"v1.apps": {}}, open: true, heard: time.Now().Add(time.Hour)},
		serversKnown: func() bool { return true },
		known: map[schema.GroupVersion]*discovered{{Group: "apps", Version: "v1"}: {
			resources: map[string]Entry{"deployments": {Namespaced: true}},
			read:      time.Now().Add(time.Hour),
		}},
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = c.Lookup(b.Context(), "apps", "v1", "deployments")
	}
}

// TestCatalogTellsWhatMoved: who keeps objects of a group/version must let go of them when
// another server answers for it.
func TestCatalogTellsWhatMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		told := &told{}
		c, err := newCatalog(f.Config(), Config{Log: proxytest.DiscardLog()}, func() bool { return true }, func(gv schema.GroupVersion, what string) {
			told.mu.Lock()
			defer told.mu.Unlock()
			told.what = append(told.what, gv.String()+": "+what)
		})
		expect.NoError(t, err)
		proxytest.RunInBubble(t, c.run)
		unavailable := strings.Replace(apiService("v1beta1", "metrics.k8s.io", someService, 2), `,"spec"`,
			`,"status":{"conditions":[{"type":"Available","status":"False"}]},"spec"`, 1)
		for _, step := range []struct {
			name, event, object string
			want                []string
		}{
			{"the first list", "BOOKMARK", apiService("v1", "apps", "", 1), nil},
			{"a condition", "MODIFIED", unavailable, nil},
			{"a new one", "ADDED", apiService("v1", "new", "", 2), nil},
			{"to another server", "MODIFIED", apiService("v1", "apps", someService, 3), []string{"apps/v1: kube-apiserver to Service kube-system/metrics-server:443"}},
			{"and back", "MODIFIED", apiService("v1", "apps", "", 4), []string{"apps/v1: Service kube-system/metrics-server:443 to kube-apiserver"}},
			{"gone", "DELETED", apiService("v1", "example.com", "", 5), []string{"example.com/v1: kube-apiserver, by definitions to none"}},
		} {
			f.Event(apiServicesPath, step.event, step.object)
			if diff := cmp.Diff(step.want, told.take()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step.name, diff)
			}
		}
	})
}

// TestWhoAnswers: what kind of resources a group/version has is said by the API server's own label.
// Without it nobody knows, and they are left alone.
func TestWhoAnswers(t *testing.T) {
	for _, tt := range []struct {
		label   string
		service any
		want    server
	}{
		{"onstart", nil, server{}},
		{"true", nil, server{custom: true}},
		{"", nil, server{aggregated: true}},
		{"other", nil, server{aggregated: true}},
		{"onstart", map[string]any{}, server{aggregated: true}},
		{"true", map[string]any{}, server{aggregated: true, custom: true}},
		{"", map[string]any{"namespace": "ns", "name": "n", "port": int64(443)}, server{aggregated: true, service: "ns/n:443"}},
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
