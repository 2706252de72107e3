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

// usualAnswers, as the status of a Hop, ends its refusals.
const usualAnswers = 0

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

// apiResource returns an entry of a discovery document.
func apiResource(name, kind string, namespaced bool, verbs ...string) metav1.APIResource {
	return metav1.APIResource{Name: name, Kind: kind, Namespaced: namespaced, Verbs: verbs}
}

// newUpstream returns a control plane of one API server, with widgets, and the hop before it.
func newUpstream(t *testing.T) *inmemory.Hop {
	t.Helper()
	plane := inmemory.New(t)
	plane.AddServer("v1.36.3").Start("v1.36.3")
	return inmemory.NewHop(t, plane)
}

// newFakeCluster is newUpstream with built-in APIs and an aggregated API.
func newFakeCluster(t *testing.T) *inmemory.Hop {
	t.Helper()
	f := newUpstream(t)
	// kube-apiserver itself serves a group whose APIService has no service, or null.
	f.Put(inmemory.APIServices, inmemory.APIService("v1", "", ""))
	f.Put(inmemory.APIServices, inmemory.APIService("v1", "apps", "null"))
	f.Put(inmemory.APIServices, inmemory.APIService("v1beta1", "metrics.k8s.io", someService))
	f.Put(inmemory.APIServices, inmemory.APIService("v1", "empty.example.com", "{}"))
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

// sendEvent makes watches have an event, and waits until the bubble is idle. The type "" stands for the event of a write. A
// bookmark carries the object, which watchers must ignore.
func sendEvent(f *inmemory.Hop, kind inmemory.Kind, eventType watch.EventType, o inmemory.Object) {
	switch eventType {
	case watch.Bookmark:
		f.Send(kind.Path, inmemory.Event{Type: string(eventType), Object: o, Revision: f.Revision()}.Write(kind, inmemory.Form{}))
	case watch.Deleted:
		f.Delete(kind, o)
	default:
		f.Put(kind, o)
	}
	synctest.Wait()
}

// runCluster starts a Cluster of f, which runs until the bubble ends. It returns after the first poll of the routes: then the
// Cluster has read everything that f has. The functions in config may be nil.
func runCluster(t *testing.T, f *inmemory.Hop, config Config) *Cluster {
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
	c, err := New(f.Config(), config)
	expect.NoError(t, err)
	proxytest.RunInBubble(t, c.Run)
	time.Sleep(routesPollInterval)
	synctest.Wait()
	return c
}

// found is the outcome of a lookup.
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

// notFound is the outcome for a resource that must be forwarded.
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
		expect.Same(t, false, c.IsCurrent(deployments, foundCustom.Entry))
		expect.Same(t, true, c.Serves("apps", "v1", "deployments"))
		expect.Same(t, false, c.Serves("apps", "v1", "none"))
	})
}

// TestLookupOfMadeUpGroups: a lookup in a group or version that a caller has made up costs neither a request nor memory.
func TestLookupOfMadeUpGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		c := runCluster(t, f, Config{})
		before := f.AllRequests()
		for n := range 1000 {
			expectLookup(t, c, fmt.Sprintf("g%d.example.com v1 x", n), notFound(reason.UnknownResource))
			expectLookup(t, c, fmt.Sprintf("core v%d pods", n+2), notFound(reason.UnknownResource))
		}
		expect.Same(t, before, f.AllRequests())
		expect.Same(t, 2, len(c.knownBuiltins())) // v1 and apps/v1
	})
}

// ofResource and ofV1 return the scopes of a resource, and of version v1 of a group.
func ofResource(group, resource string) snapshot.Scope {
	return snapshot.OfResource(schema.GroupResource{Group: group, Resource: resource})
}

func ofV1(group string) snapshot.Scope {
	return snapshot.OfVersion(schema.GroupVersion{Group: group, Version: "v1"})
}
