package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

const apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices"

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
		proxytest.APIService("v1", "", "", 1),
		proxytest.APIService("v1", "apps", "null", 1),
		proxytest.APIService("v1", "example.com", "", 1),
		proxytest.APIService("v1beta1", "metrics.k8s.io", someService, 1),
		proxytest.APIService("v1", "empty.example.com", "{}", 1),
	}}
	f.Collections[definitionsPath] = &proxytest.FakeCollection{
		Kind: "CustomResourceDefinitionList", APIVersion: "apiextensions.k8s.io/v1", Objects: []string{proxytest.Definition("widgets", "Namespaced", 1, 1)},
	}
	f.SetDocument("/api/v1", discoveryOf(t, "v1",
		apiResource("pods", "Pod", true, "create", "delete", "get", "list", "watch"),
		apiResource("pods/status", "Pod", true, "get", "list", "watch"),
		apiResource("nodes", "Node", false, "get", "list", "watch"),
		apiResource("bindings", "Binding", true, "create"),
		apiResource("componentstatuses", "ComponentStatus", false, "get", "list"),
		apiResource("streams", "Stream", false, "watch"),
	))
	f.SetDocument("/apis/apps/v1", discoveryOf(t, "apps/v1", apiResource("deployments", "Deployment", true, "list", "watch")))
	// Aggregated APIs have discovery like any other.
	f.SetDocument("/apis/metrics.k8s.io/v1beta1", discoveryOf(t, "metrics.k8s.io/v1beta1", apiResource("pods", "PodMetrics", true, "list", "watch")))
	return f
}

// invalidated says what an invalidation is about.
func invalidated(i snapshot.Invalidation) string {
	return fmt.Sprintf("%s %v: %s", i.Cause, i.Scope, i.What)
}

// runCluster runs a Cluster of f in the bubble, until it knows what can be known at once.
func runCluster(t *testing.T, f *proxytest.FakeAPI, invalidate func(snapshot.Invalidation)) *Cluster {
	t.Helper()
	return runClusterWith(t, f, Config{Invalidate: invalidate, Verify: func(snapshot.Scope, string) {}})
}

// runClusterWith is runCluster with another configuration, but for the log.
func runClusterWith(t *testing.T, f *proxytest.FakeAPI, config Config) *Cluster {
	t.Helper()
	config.Log = proxytest.DiscardLog()
	c, err := New(f.Config(), config)
	expect.NoError(t, err)
	proxytest.RunInBubble(t, c.Run)
	time.Sleep(routesPollInterval)
	synctest.Wait()
	return c
}

// runLookups is runCluster for tests that only look up.
func runLookups(t *testing.T, f *proxytest.FakeAPI) *Cluster {
	t.Helper()
	return runCluster(t, f, func(snapshot.Invalidation) {})
}

// found is the outcome of a lookup.
type found struct {
	Entry  Entry
	Reason reason.Reason
}

// expectLookup looks up a resource by its group, version and name.
func expectLookup(t *testing.T, c *Cluster, resource string, want found) {
	t.Helper()
	synctest.Wait()
	part := strings.Split(resource, " ")
	entry, reason := c.Lookup(schema.GroupVersionResource{Group: part[0], Version: part[1], Resource: part[2]})
	if diff := cmp.Diff(want, found{entry, reason}); diff != "" {
		t.Errorf("%s (-want +got):\n%s", resource, diff)
	}
}

func forwardedAs(reason reason.Reason) found { return found{Reason: reason} }

var (
	foundPods        = found{Entry: Entry{Namespaced: true}}
	foundDeployments = found{Entry: Entry{Namespaced: true}}
	foundWidgets     = found{Entry: Entry{Namespaced: true, Custom: true}}
)

// TestLookup: resources that can be listed and watched are found, with their scope, and no others.
func TestLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runLookups(t, newFakeCluster(t))
		for resource, want := range map[string]found{
			" v1 pods": foundPods, " v1 nodes": {Entry: Entry{}},
			"apps v1 deployments": foundDeployments, "example.com v1 widgets": foundWidgets,
		} {
			expectLookup(t, c, resource, want)
		}
		for _, resource := range []string{
			" v1 pods/status", " v1 bindings", " v1 componentstatuses", " v1 streams", " v1 deployments", " v1 ", " v2 pods", "  pods",
			"apps v2 deployments", "example.com v1 gadgets", "example.com v1 widgets/status", "example.com v2 widgets",
			"none.example.com v1 widgets", "metrics.k8s.io v1beta1 pods", "metrics.k8s.io v1beta1 none", "empty.example.com v1 none",
		} {
			expectLookup(t, c, resource, forwardedAs(reason.UnknownResource))
		}
		deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
		if !c.IsCurrent(deployments, foundDeployments.Entry) || c.IsCurrent(deployments, foundWidgets.Entry) {
			t.Error("the entry of another resource is current, or that of this one is not")
		}
		if !c.Serves("apps", "v1", "deployments") || c.Serves("apps", "v1", "none") {
			t.Error("a resource that is not known is served, or one that is known is not")
		}
	})
}

// TestLookupOfMadeUpGroups: groups that callers make up cost neither a request nor memory.
func TestLookupOfMadeUpGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		c := runLookups(t, f)
		before := len(f.Requests)
		for n := range 1000 {
			expectLookup(t, c, fmt.Sprintf("g%d.example.com v1 x", n), forwardedAs(reason.UnknownResource))
			expectLookup(t, c, fmt.Sprintf(" v%d pods", n+2), forwardedAs(reason.UnknownResource))
		}
		if got := len(f.Requests); got != before || len(c.builtins) != 2 {
			t.Errorf("%d more paths asked for, %d group/versions remembered", got-before, len(c.builtins))
		}
	})
}
