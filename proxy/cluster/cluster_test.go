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
	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// usualAnswers, as the argument of Hop.SetStatus, makes the servers answer again.
const usualAnswers = 0

// someService is the service of an APIService that another server than kube-apiserver answers.
const someService = `{"namespace":"kube-system","name":"metrics-server","port":443}`

// discoveryOf returns the discovery document of a group and version, which lists resources.
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

const namespaced, clusterScoped = true, false

// apiResource returns an entry of a discovery document.
func apiResource(name, kind string, isNamespaced bool, verbs ...string) metav1.APIResource {
	return metav1.APIResource{Name: name, Kind: kind, Namespaced: isNamespaced, Verbs: verbs}
}

// newUpstream returns an upstream: a control plane in memory of one API server, which serves the custom resource widgets. The
// Hop is the way to it, on which a test can let requests fail.
func newUpstream(t *testing.T) *inmemory.Hop {
	t.Helper()
	plane := inmemory.New(t)
	plane.AddServer("v1.36.3").Start("v1.36.3")
	return inmemory.NewHop(t, plane)
}

// newFakeCluster is newUpstream, with built-in APIs and an aggregated API, too.
func newFakeCluster(t *testing.T) *inmemory.Hop {
	t.Helper()
	upstream := newUpstream(t)
	// kube-apiserver itself serves a group whose APIService has no service, or null.
	upstream.Put(inmemory.APIServices, inmemory.APIService("v1", "", ""))
	upstream.Put(inmemory.APIServices, inmemory.APIService("v1", "apps", "null"))
	upstream.Put(inmemory.APIServices, inmemory.APIService("v1beta1", "metrics.k8s.io", someService))
	upstream.Put(inmemory.APIServices, inmemory.APIService("v1", "empty.example.com", "{}"))
	upstream.SetDocument("/api/v1", discoveryOf(t, "v1",
		apiResource("pods", "Pod", namespaced, "create", "delete", "get", "list", "watch"),
		apiResource("pods/status", "Pod", namespaced, "get", "list", "watch"),
		apiResource("nodes", "Node", clusterScoped, "get", "list", "watch"),
		apiResource("bindings", "Binding", namespaced, "create"),
		apiResource("componentstatuses", "ComponentStatus", clusterScoped, "get", "list"),
		apiResource("streams", "Stream", clusterScoped, "watch"),
	))
	deployments := apiResource("deployments", "Deployment", namespaced, "list", "watch")
	upstream.SetDocument("/apis/apps/v1", discoveryOf(t, "apps/v1", deployments))
	podMetrics := apiResource("pods", "PodMetrics", namespaced, "list", "watch") // an aggregated API has discovery like any other
	upstream.SetDocument("/apis/metrics.k8s.io/v1beta1", discoveryOf(t, "metrics.k8s.io/v1beta1", podMetrics))
	return upstream
}

// writeEvent stands for the event of a write, ADDED or MODIFIED, in place of the event's type.
const writeEvent watch.EventType = ""

// sendEvent makes the upstream send an event to watches, and waits until the bubble is idle. For writeEvent it writes the
// object, and for watch.Deleted it deletes the object. For watch.Bookmark it sends a bookmark that carries the object. Watchers
// must not take that for a change.
func sendEvent(upstream *inmemory.Hop, kind inmemory.Kind, eventType watch.EventType, o inmemory.Object) {
	switch eventType {
	case watch.Bookmark:
		upstream.Send(kind.Path, inmemory.Event{Type: string(eventType), Object: o, Revision: upstream.Revision()}.Write(kind, inmemory.Form{}))
	case watch.Deleted:
		upstream.Delete(kind, o)
	case writeEvent:
		upstream.Put(kind, o)
	}
	synctest.Wait()
}

// runCluster starts a Cluster of upstream, which runs until the bubble ends. It returns after the first poll of the routes,
// when the Cluster has read everything that upstream has. The functions in config may be nil.
func runCluster(t *testing.T, upstream *inmemory.Hop, config Config) *Cluster {
	t.Helper()
	config.Log = proxytest.DiscardLog()
	if config.Invalidate == nil {
		config.Invalidate = func(snapshot.Scope, reason.Reason) {}
	}
	if config.Verify == nil {
		config.Verify = func(snapshot.Scope) {}
	}
	if config.Revoked == nil {
		config.Revoked = func(string) {}
	}
	c, err := New(upstream.Config(), config)
	expect.NoError(t, err)
	proxytest.RunInBubble(t, c.Run)
	time.Sleep(routesPollInterval)
	synctest.Wait()
	return c
}

// found is the result of Lookup: the entry of a resource, or the reason to forward its requests.
type found struct {
	Entry  Entry
	Reason reason.Reason
}

// expectLookup requires what Lookup returns for a resource, given as "GROUP VERSION NAME". The core group is "core".
func expectLookup(t *testing.T, c *Cluster, resource string, want found) {
	t.Helper()
	synctest.Wait()
	parts := strings.Split(resource, " ")
	gvr := schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
	if gvr.Group == "core" {
		gvr.Group = ""
	}
	entry, why := c.Lookup(gvr)
	if diff := cmp.Diff(want, found{Entry: entry, Reason: why}); diff != "" {
		t.Errorf("%s (-want +got):\n%s", resource, diff)
	}
}

// notFound returns the result for a resource that must be forwarded.
func notFound(why reason.Reason) found { return found{Reason: why} }

var (
	foundNamespaced    = found{Entry: Entry{Namespaced: true}}
	foundClusterScoped = found{Entry: Entry{Namespaced: false}}
	foundCustom        = found{Entry: Entry{Namespaced: true, Custom: true}}
)

// TestLookup: resources that can be listed and watched are found, with their scope, and no others.
func TestLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runCluster(t, newFakeCluster(t), Config{})
		for resource, want := range map[string]found{
			"core v1 pods":           foundNamespaced,
			"core v1 nodes":          foundClusterScoped,
			"apps v1 deployments":    foundNamespaced,
			"example.com v1 widgets": foundCustom,
		} {
			expectLookup(t, c, resource, want)
		}
		const noVersion, noName = "", ""
		for _, resource := range []string{
			// Subresources, and resources that cannot be listed or cannot be watched.
			"core v1 pods/status", "example.com v1 widgets/status", "core v1 bindings", "core v1 componentstatuses", "core v1 streams",
			// No group, version or resource of this name.
			"core v1 deployments", "core v1 " + noName, "core v2 pods", "core " + noVersion + " pods", "apps v2 deployments",
			"example.com v1 gadgets", "example.com v2 widgets", "none.example.com v1 widgets", "empty.example.com v1 none",
			// An aggregated API.
			"metrics.k8s.io v1beta1 pods", "metrics.k8s.io v1beta1 none",
		} {
			expectLookup(t, c, resource, notFound(reason.UnknownResource))
		}
	})
}

// TestIsCurrentAndServes: IsCurrent is true only for the entry that Lookup returns, and Serves only for a resource that Lookup
// finds.
func TestIsCurrentAndServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runCluster(t, newFakeCluster(t), Config{})
		deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
		expect.Same(t, true, c.IsCurrent(deployments, foundNamespaced.Entry))
		expect.Same(t, false, c.IsCurrent(deployments, foundCustom.Entry)) // deployments are built in
		expect.Same(t, true, c.Serves("apps", "v1", "deployments"))
		expect.Same(t, false, c.Serves("apps", "v1", "none"))
	})
}

// TestLookupOfMadeUpGroups: a lookup in a group or version that a caller has made up costs neither a request nor memory.
func TestLookupOfMadeUpGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := newFakeCluster(t)
		c := runCluster(t, upstream, Config{})
		before := upstream.AllRequests()
		for n := range 1000 {
			expectLookup(t, c, fmt.Sprintf("g%d.example.com v1 x", n), notFound(reason.UnknownResource))
			expectLookup(t, c, fmt.Sprintf("core v%d pods", n+2), notFound(reason.UnknownResource))
		}
		expect.Same(t, before, upstream.AllRequests())
		expect.Same(t, 2, len(c.knownBuiltins())) // v1 and apps/v1
	})
}

// resourceScope returns the scope of a resource.
func resourceScope(group, resource string) snapshot.Scope {
	return snapshot.OfResource(schema.GroupResource{Group: group, Resource: resource})
}

// v1Scope returns the scope of version v1 of a group.
func v1Scope(group string) snapshot.Scope {
	return snapshot.OfVersion(schema.GroupVersion{Group: group, Version: "v1"})
}
