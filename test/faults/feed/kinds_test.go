package feed

import (
	"maps"
	"net/http"
	"strings"
	"testing"
)

// kind is a resource that a test writes and lists. Tests that need quiet, or count what the
// feed asks for, have one to themselves.
type kind struct {
	apiVersion, name, plural string
	clusterScoped            bool
	// rest is what an object needs beside its metadata.
	rest map[string]any
}

type fieldsOf = map[string]any

var (
	podSpec  = fieldsOf{"containers": []any{fieldsOf{"name": "main", "image": "example.com/main:1"}}}
	template = fieldsOf{"metadata": fieldsOf{"labels": fieldsOf{"app": "x"}}, "spec": podSpec}
	selector = fieldsOf{"matchLabels": fieldsOf{"app": "x"}}
)

var (
	configMaps      = kind{"v1", "ConfigMap", "configmaps", false, fieldsOf{"data": fieldsOf{"key": "<&>\u2028é"}}}
	pods            = kind{"v1", "Pod", "pods", false, fieldsOf{"spec": podSpec}}
	endpoints       = kind{"v1", "Endpoints", "endpoints", false, nil}
	limitRanges     = kind{"v1", "LimitRange", "limitranges", false, fieldsOf{"spec": fieldsOf{"limits": []any{}}}}
	podTemplates    = kind{"v1", "PodTemplate", "podtemplates", false, fieldsOf{"template": template}}
	resourceQuotas  = kind{"v1", "ResourceQuota", "resourcequotas", false, nil}
	claims          = kind{"v1", "PersistentVolumeClaim", "persistentvolumeclaims", false, fieldsOf{"spec": fieldsOf{"accessModes": []any{"ReadWriteOnce"}, "resources": fieldsOf{"requests": fieldsOf{"storage": "1Gi"}}}}}
	controllers     = kind{"v1", "ReplicationController", "replicationcontrollers", false, fieldsOf{"spec": fieldsOf{"selector": fieldsOf{"app": "x"}, "template": template}}}
	deployments     = kind{"apps/v1", "Deployment", "deployments", false, fieldsOf{"spec": fieldsOf{"selector": selector, "template": template}}}
	daemonSets      = kind{"apps/v1", "DaemonSet", "daemonsets", false, fieldsOf{"spec": fieldsOf{"selector": selector, "template": template}}}
	replicaSets     = kind{"apps/v1", "ReplicaSet", "replicasets", false, fieldsOf{"spec": fieldsOf{"selector": selector, "template": template}}}
	statefulSets    = kind{"apps/v1", "StatefulSet", "statefulsets", false, fieldsOf{"spec": fieldsOf{"selector": selector, "template": template}}}
	revisions       = kind{"apps/v1", "ControllerRevision", "controllerrevisions", false, fieldsOf{"revision": 1, "data": fieldsOf{"b": 1, "a": 2}}}
	networkPolicies = kind{"networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", false, fieldsOf{"spec": fieldsOf{"podSelector": fieldsOf{}}}}
	budgets         = kind{"policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", false, fieldsOf{"spec": fieldsOf{"minAvailable": 1}}}
	endpointSlices  = kind{"discovery.k8s.io/v1", "EndpointSlice", "endpointslices", false, fieldsOf{"addressType": "IPv4", "endpoints": []any{}}}
	priorityClasses = kind{"scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", true, fieldsOf{"value": 1}}
	storageClasses  = kind{"storage.k8s.io/v1", "StorageClass", "storageclasses", true, fieldsOf{"provisioner": "x"}}
	csiDrivers      = kind{"storage.k8s.io/v1", "CSIDriver", "csidrivers", true, fieldsOf{"spec": fieldsOf{}}}
	runtimeClasses  = kind{"node.k8s.io/v1", "RuntimeClass", "runtimeclasses", true, fieldsOf{"handler": "x"}}

	widgets = kind{"feed.test/v1", "Widget", "widgets", false, fieldsOf{"spec": fieldsOf{"z": 1, "a": fieldsOf{"y": []any{}, "b": "<&>"}}}}
	gadgets = kind{"feed.test/v1", "Gadget", "gadgets", false, nil}
	blanks  = kind{"feed.test/v1", "Blank", "blanks", true, nil}
)

// customKinds are defined in every control plane. Gadgets are deprecated. What a test defines for itself, or
// changes, has a group of its own: at any change in a group listproxy forgets what discovery said about it,
// and who asks just then is forwarded.
var customKinds = []kind{widgets, gadgets, blanks}

// group of a custom resource.
func (k kind) group() string {
	group, _, _ := strings.Cut(k.apiVersion, "/")
	return group
}

func (k kind) definitionName() string { return k.plural + "." + k.group() }

func (k kind) definition() any {
	scope := "Namespaced"
	if k.clusterScoped {
		scope = "Cluster"
	}
	return fieldsOf{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": fieldsOf{"name": k.definitionName()},
		"spec": fieldsOf{
			"group": k.group(), "scope": scope,
			"names": fieldsOf{"plural": k.plural, "kind": k.name},
			"versions": []any{fieldsOf{
				"name": "v1", "served": true, "storage": true, "deprecated": k.plural == gadgets.plural,
				"schema": fieldsOf{"openAPIV3Schema": fieldsOf{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}
}

// list is the path of the whole resource, or of one namespace.
func (k kind) list(namespace string) string {
	path := "/apis/" + k.apiVersion
	if k.apiVersion == "v1" {
		path = "/api/v1"
	}
	if namespace != "" && !k.clusterScoped {
		path += "/namespaces/" + namespace
	}
	return path + "/" + k.plural
}

// create writes a new object, directly, and returns its revision.
func (c *cluster) create(t *testing.T, k kind, namespace, name string) string {
	t.Helper()
	return c.write(t, http.MethodPost, k.list(namespace), k.object(name))
}

// object with a name.
func (k kind) object(name string) any {
	object := fieldsOf{"apiVersion": k.apiVersion, "kind": k.name, "metadata": fieldsOf{"name": name}}
	maps.Copy(object, k.rest)
	return object
}

// touch changes an object and returns its revision.
func (c *cluster) touch(t *testing.T, k kind, namespace, name, value string) string {
	t.Helper()
	return c.write(t, http.MethodPatch, k.list(namespace)+"/"+name,
		fieldsOf{"metadata": fieldsOf{"annotations": fieldsOf{"touched": value}}})
}

// remove deletes an object, at once.
func (c *cluster) remove(t *testing.T, k kind, namespace, name string) {
	t.Helper()
	c.write(t, http.MethodDelete, k.list(namespace)+"/"+name+"?gracePeriodSeconds=0&propagationPolicy=Background", nil)
}

func (c *cluster) write(t *testing.T, method, path string, object any) string {
	t.Helper()
	a, err := c.direct.Do(t.Context(), method, path, object)
	if err != nil {
		t.Fatal(err)
	}
	return a.Meta().ResourceVersion
}

// namespace creates one for a test. (Nothing here deletes what a namespace holds.)
func (c *cluster) namespace(t *testing.T, name string) string {
	t.Helper()
	c.write(t, http.MethodPost, "/api/v1/namespaces", kind{apiVersion: "v1", name: "Namespace"}.object(name))
	return name
}
