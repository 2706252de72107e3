package feed

import (
	"net/http"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/kinds"
)

// kind is a resource that a test writes and lists. Tests that need quiet, or count what the
// feed asks for, have one to themselves.
type kind = kinds.Kind

type fieldsOf = kinds.Fields

const (
	podSpec  = `{"containers":[{"name":"main","image":"example.com/main:1"}]}`
	template = `{"metadata":{"labels":{"app":"x"}},"spec":` + podSpec + `}`
	workload = `{"spec":{"selector":{"matchLabels":{"app":"x"}},"template":` + template + `}}`
)

// namespaced is a kind of objects in namespaces; rest is what they need beside metadata.
func namespaced(apiVersion, name, plural, rest string) kind {
	return kind{APIVersion: apiVersion, Name: name, Plural: plural, Rest: rest}
}

// clusterScoped is a kind of objects that have no namespace.
func clusterScoped(apiVersion, name, plural, rest string) kind {
	return kind{APIVersion: apiVersion, Name: name, Plural: plural, Rest: rest, ClusterScoped: true}
}

var (
	configMaps      = namespaced("v1", "ConfigMap", "configmaps", `{"data":{"key":"<&>\u2028é"}}`)
	pods            = namespaced("v1", "Pod", "pods", `{"spec":`+podSpec+`}`)
	endpoints       = namespaced("v1", "Endpoints", "endpoints", "")
	limitRanges     = namespaced("v1", "LimitRange", "limitranges", `{"spec":{"limits":[]}}`)
	podTemplates    = namespaced("v1", "PodTemplate", "podtemplates", `{"template":`+template+`}`)
	resourceQuotas  = namespaced("v1", "ResourceQuota", "resourcequotas", "")
	claims          = namespaced("v1", "PersistentVolumeClaim", "persistentvolumeclaims", `{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`)
	deployments     = namespaced("apps/v1", "Deployment", "deployments", workload)
	revisions       = namespaced("apps/v1", "ControllerRevision", "controllerrevisions", `{"revision":1,"data":{"b":1,"a":2}}`)
	networkPolicies = namespaced("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", `{"spec":{"podSelector":{}}}`)
	budgets         = namespaced("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", `{"spec":{"minAvailable":1}}`)
	endpointSlices  = namespaced("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", `{"addressType":"IPv4","endpoints":[]}`)
	priorityClasses = clusterScoped("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", `{"value":1}`)

	widgets = namespaced("feed.test/v1", "Widget", "widgets", `{"spec":{"z":1,"a":{"y":[],"b":"<&>"}}}`)
	gadgets = namespaced("feed.test/v1", "Gadget", "gadgets", "")
	blanks  = clusterScoped("feed.test/v1", "Blank", "blanks", "")
)

// definitions are those that every control plane has. Gadgets are deprecated. What a test defines
// for itself, or changes, has a group of its own: at any change in a group listproxy forgets what
// discovery said about it, and who asks just then is forwarded.
func definitions() map[kind]fieldsOf {
	deprecated := kinds.Version(kinds.Open(nil))
	deprecated["deprecated"] = true
	return map[kind]fieldsOf{widgets: widgets.Definition(), gadgets: gadgets.Definition(deprecated), blanks: blanks.Definition()}
}

// create writes a new object, directly, and returns its revision.
func (c *cluster) create(t *testing.T, k kind, namespace, name string) string {
	t.Helper()
	return c.write(t, http.MethodPost, k.Path(namespace), k.Object(name))
}

// touch changes an object and returns its revision.
func (c *cluster) touch(t *testing.T, k kind, namespace, name, value string) string {
	t.Helper()
	return c.write(t, http.MethodPatch, k.Path(namespace)+"/"+name, kinds.Touch(value))
}

// remove deletes an object, at once.
func (c *cluster) remove(t *testing.T, k kind, namespace, name string) {
	t.Helper()
	c.write(t, http.MethodDelete, k.Path(namespace)+"/"+name+"?gracePeriodSeconds=0&propagationPolicy=Background", nil)
}

func (c *cluster) write(t *testing.T, method, path string, object any) string {
	t.Helper()
	a, err := c.direct.Do(t.Context(), method, path, object)
	expect.NoError(t, err)
	return a.Meta().ResourceVersion
}

// namespace creates one for a test. (Nothing here deletes what a namespace holds.)
func (c *cluster) namespace(t *testing.T, name string) string {
	t.Helper()
	c.write(t, http.MethodPost, "/api/v1/namespaces", kinds.Namespace(name))
	return name
}
