package cluster

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/test/harness/kinds"
)

// object is JSON as it is sent; numbers that Go would write differently are json.RawMessage.
type object = map[string]any

// Field is a field that a field selector may name, and values to compare it with.
type Field struct {
	Name   string
	Values []string
}

// NodeNameField is the field that selects the pods of a node.
const NodeNameField = "spec.nodeName"

// Resource is a resource that is compared.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Cached reports whether listproxy keeps the resource in memory with the default policy.
	Cached bool
	// JSONOnly reports that the server has no protobuf of the resource, not even of its metadata.
	JSONOnly bool
	// Fields are the selectable fields of the type.
	Fields []Field
	// dotted reports whether names may have dots.
	dotted bool
	// Reader marks a version that is only read. The objects are written in another version.
	Reader bool
	// build returns a random new object.
	build func(*rand.Rand) object
	// patch returns a random merge patch, and the subresource for it or "".
	patch func(*rand.Rand) (object, string)
}

// kind returns the kind of the resource.
func (r Resource) kind() kinds.Kind {
	return kinds.Kind{APIVersion: r.GroupVersion().String(), Name: r.Kind, Plural: r.Resource}
}

// Path returns the path of a list of all namespaces if namespace is "", or of one.
func (r Resource) Path(namespace string) string { return r.kind().Path(namespace) }

// Names returns the names of the objects: prefixes of each other, and with characters that are before and behind '/' in byte
// order, since keys of etcd have a '/' after the namespace.
func (r Resource) Names() []string {
	names := []string{"a", "a-0", "a-0-b", "a0", "aa", "aa-a", "b", "b-1", "b-10", "b-2", "z", "zz"}
	if r.dotted {
		names = append(names, "a.0", "a-0.b", "a.0-b", "b.1", "0", "0.0-a")
	}
	if r.Resource == "namespaces" || r.Resource == "nodes" || !r.Namespaced {
		for i, name := range names {
			names[i] = "churn-" + name
		}
	}
	return names
}

// Group is the group of the custom resources.
const Group = "differential.listproxy.test"

// Resources returns everything that is compared.
func Resources() []Resource {
	core := func(name string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: name}
	}
	custom := func(version, name string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: Group, Version: version, Resource: name}
	}
	return []Resource{
		{
			GroupVersionResource: core("pods"), Kind: "Pod", Namespaced: true, Cached: true, dotted: true,
			Fields: []Field{
				{NodeNameField, []string{"churn-a", "churn-a", "churn-b", "", "none"}},
				{NodeNameField, []string{"churn-a", "churn-b"}}, // twice: it is what kubelets ask for
				{"spec.restartPolicy", []string{"Always", "Never", ""}},
				{"spec.schedulerName", []string{"default-scheduler", "other"}},
				{"spec.serviceAccountName", []string{"robot", "", "none"}},
				{"spec.hostNetwork", []string{"true", "false", ""}},
				{"status.phase", []string{"Running", "Pending", "Failed", ""}},
				{"status.podIP", []string{"10.1.0.1", "10.1.0.2", "fd00::1", ""}},
				{"status.nominatedNodeName", []string{"churn-a", "", "none"}},
			},
			build: buildPod, patch: patchPod,
		},
		{
			GroupVersionResource: core("configmaps"), Kind: "ConfigMap", Namespaced: true, Cached: true, dotted: true,
			build: buildConfigMap, patch: func(r *rand.Rand) (object, string) { return object{"data": texts(r)}, "" },
		},
		{
			GroupVersionResource: core("services"), Kind: "Service", Namespaced: true, Cached: true,
			Fields: []Field{{"spec.type", []string{"ClusterIP", "ExternalName", ""}}, {"spec.clusterIP", []string{"None", "", "10.0.0.1"}}},
			build:  buildService, patch: patchMetadata,
		},
		{
			GroupVersionResource: core("serviceaccounts"), Kind: "ServiceAccount", Namespaced: true, Cached: true, dotted: true,
			build: func(*rand.Rand) object { return object{} }, patch: patchMetadata,
		},
		{
			GroupVersionResource: core("secrets"), Kind: "Secret", Namespaced: true, dotted: true,
			Fields: []Field{{"type", []string{"Opaque", "example.test/other", ""}}},
			build: func(r *rand.Rand) object {
				return object{"stringData": texts(r), "type": []string{"Opaque", "example.test/other"}[r.IntN(2)]}
			},
			patch: patchMetadata,
		},
		{
			GroupVersionResource: core("nodes"), Kind: "Node", Cached: true, dotted: true,
			Fields: []Field{{"spec.unschedulable", []string{"true", "false", ""}}},
			build:  func(r *rand.Rand) object { return object{"spec": object{"unschedulable": r.IntN(2) == 0}} },
			patch: func(r *rand.Rand) (object, string) {
				return object{"spec": object{"unschedulable": []any{true, false, nil}[r.IntN(3)]}}, ""
			},
		},
		{
			GroupVersionResource: core("replicationcontrollers"), Kind: "ReplicationController", Namespaced: true, Cached: true, dotted: true,
			Fields: []Field{{"status.replicas", []string{"0", "1", "2", ""}}},
			build:  buildController,
			patch: func(r *rand.Rand) (object, string) {
				return object{"status": object{"replicas": r.IntN(3)}}, "status"
			},
		},
		{
			GroupVersionResource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"},
			Kind:                 "Job", Namespaced: true, Cached: true, dotted: true,
			Fields: []Field{{"status.successful", []string{"0", "1", "2", ""}}},
			build:  buildJob,
			patch: func(r *rand.Rand) (object, string) {
				return object{"status": object{"succeeded": r.IntN(3)}}, "status"
			},
		},
		{
			GroupVersionResource: core("namespaces"), Kind: "Namespace", Cached: true,
			Fields: []Field{{"status.phase", []string{"Active", "Terminating", ""}}},
			build:  func(*rand.Rand) object { return object{} }, patch: patchMetadata,
		},
		{
			GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
			Kind:                 "Deployment", Namespaced: true, Cached: true, dotted: true,
			build: buildDeployment,
			patch: func(r *rand.Rand) (object, string) { return object{"spec": object{"replicas": r.IntN(100)}}, "" },
		},
		{
			GroupVersionResource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
			Kind:                 "Lease", Namespaced: true, Cached: true, dotted: true,
			build: func(r *rand.Rand) object { return object{"spec": object{"holderIdentity": text(r)}} },
			patch: func(r *rand.Rand) (object, string) {
				return object{"spec": object{"renewTime": fmt.Sprintf("2026-01-02T03:04:05.%06dZ", r.IntN(1e6))}}, ""
			},
		},
		{
			GroupVersionResource: custom("v1", "gadgets"), Kind: "Gadget", Namespaced: true, Cached: true, dotted: true,
			Fields: customFields,
			build:  buildCustom, patch: func(r *rand.Rand) (object, string) { return buildCustom(r), "" },
		},
		// The same objects in a deprecated version, whose lists carry a Warning.
		{
			GroupVersionResource: custom("v1beta1", "gadgets"), Kind: "Gadget", Namespaced: true, Cached: true, dotted: true,
			Reader: true, Fields: customFields[:1],
		},
		{
			GroupVersionResource: custom("v1", "widgets"), Kind: "Widget", Cached: true, dotted: true,
			Fields: customFields,
			build:  buildCustom, patch: func(r *rand.Rand) (object, string) { return buildCustom(r), "" },
		},
	}
}

// text returns a random string that a wrong encoder of JSON may change.
func text(r *rand.Rand) string {
	all := []string{
		"plain", "", " ", "null", "true", "0123",
		`<b>&amp;</b>`, "line\u2028 and paragraph\u2029", `quote " backslash \ slash /`, "tab\tnewline\ncr\rbell\b\f",
		"\u0000\u0001\u001f\u007f\u0080", "日本語 🚀 é e\u0301", "\ufffd\ufeff",
		`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1"}},`, `"continue":"eyJ2IjoibWV0YSJ9"`, `]}` + "\n",
	}
	return all[r.IntN(len(all))]
}

// texts returns a map of such strings, some of which are large.
func texts(r *rand.Rand) object {
	m := object{"size": strings.Repeat("x<>", r.IntN(3)*r.IntN(200))}
	for i := range r.IntN(4) {
		m[fmt.Sprintf("key.%d", i)] = text(r)
	}
	return m
}

// labels returns random labels for a merge patch, where nil deletes a label. They are those that labelSelectors select by.
func labels(r *rand.Rand) object {
	return object{
		"tier":                 []any{"web", "db", "", nil}[r.IntN(4)],
		"turn":                 []any{fmt.Sprint(r.IntN(5)), fmt.Sprint(r.IntN(5)), nil}[r.IntN(3)],
		"weight":               []any{"3", "7", "12", "heavy", nil}[r.IntN(5)],
		"example.test/part-of": []any{"x.y_z-1", nil, nil}[r.IntN(3)],
		"in":                   []any{"in", nil, nil, nil}[r.IntN(4)],
	}
}

// label adds labels to an object or a patch without metadata, every other time.
func label(r *rand.Rand, o object) object {
	if _, ok := o["metadata"]; !ok && r.IntN(2) > 0 {
		o["metadata"] = object{"labels": labels(r)}
	}
	return o
}

func patchMetadata(r *rand.Rand) (object, string) {
	return object{"metadata": object{
		"labels":      labels(r),
		"annotations": object{"note": text(r), "gone": nil},
	}}, ""
}

func buildConfigMap(r *rand.Rand) object {
	o := object{"data": texts(r)}
	if r.IntN(3) == 0 {
		o["binaryData"] = object{"b": "AAH/"}
	}
	return o
}

func buildPod(r *rand.Rand) object {
	spec := object{
		"restartPolicy": []string{"Always", "Never"}[r.IntN(2)],
		"containers": []any{object{
			"name": "c", "image": "registry.test/app:1",
			"env":     []any{object{"name": "TEXT", "value": text(r)}, object{"name": "SIZE", "value": strings.Repeat("v", r.IntN(2)*r.IntN(4000))}},
			"command": []string{"sh", "-c", "echo '<&>' > /dev/null"},
		}},
	}
	if r.IntN(2) == 0 {
		spec["nodeName"] = "churn-" + []string{"a", "b"}[r.IntN(2)]
	}
	if r.IntN(3) == 0 {
		spec["schedulerName"], spec["serviceAccountName"], spec["hostNetwork"] = "other", "robot", true
	}
	return object{"spec": spec}
}

func patchPod(r *rand.Rand) (object, string) {
	switch r.IntN(4) {
	case 0:
		return patchMetadata(r)
	case 1: // as the scheduler does; refused if the pod has a node
		return object{"target": object{"apiVersion": "v1", "kind": "Node", "name": "churn-" + []string{"a", "b"}[r.IntN(2)]}}, binding
	}
	status := object{"phase": []string{"Pending", "Running", "Failed"}[r.IntN(3)], "message": text(r)}
	status["podIP"], status["podIPs"] = nil, nil
	if r.IntN(4) > 0 {
		ip := []string{"10.1.0.1", "10.1.0.2", "fd00::1"}[r.IntN(3)]
		status["podIP"], status["podIPs"] = ip, []any{object{"ip": ip}}
	}
	status["nominatedNodeName"] = []any{"churn-a", nil}[r.IntN(2)]
	return object{"status": status}, "status"
}

// binding is the subresource that gives a pod its node.
const binding = "binding"

func buildController(r *rand.Rand) object {
	labels := object{"app": "x"}
	return object{"spec": object{
		"replicas": r.IntN(3), "selector": labels,
		"template": object{"metadata": object{"labels": labels}, "spec": object{"containers": []any{object{"name": "c", "image": "registry.test/app:1"}}}},
	}}
}

func buildJob(*rand.Rand) object {
	return object{"spec": object{"completions": 3, "template": object{"spec": object{
		"restartPolicy": "Never", "containers": []any{object{"name": "c", "image": "registry.test/app:1"}},
	}}}}
}

func buildService(r *rand.Rand) object {
	spec := object{"ports": []any{object{"port": 1 + r.IntN(60000)}}, "selector": object{"app": "x"}}
	if r.IntN(2) == 0 {
		spec["clusterIP"] = "None"
	}
	return object{"spec": spec}
}

func buildDeployment(r *rand.Rand) object {
	labels := object{"app": "x"}
	return object{"spec": object{
		"replicas": r.IntN(10),
		"selector": object{"matchLabels": labels},
		"template": object{"metadata": object{"labels": labels}, "spec": object{
			"containers": []any{object{"name": "c", "image": "registry.test/app:1", "args": []string{text(r)}}},
		}},
	}}
}

// customFields are the selectable fields of the custom resources. The old version has the first only.
var customFields = []Field{
	{"spec.color", []string{"red", "blue", "", `a,b=c\`, "none"}},
	{"spec.size", []string{"0", "1", "9223372036854775807", "-1", "", "01"}},
	{"spec.on", []string{"true", "false", "", "True"}},
}

// buildCustom returns a custom resource with unusual JSON: numbers at the limits of their types, null, empty maps and lists, and
// deep nesting.
func buildCustom(r *rand.Rand) object {
	numbers := []string{"0", "-1", "9007199254740993", "9223372036854775807", "-9223372036854775808", "42"}
	reals := []string{"0.1", "1e21", "-1.5e-7", "3.0", "1E+2", "123456789.123456789", "-0.0"}
	values := []string{"null", "{}", "[]", `{"b":1,"a":[null,{"z":{},"y":[]}]}`, `"\u003c\u2028"`, "true", "-0", "1.0"}
	return object{"spec": object{
		"color":    []any{"red", "red", "blue", "", `a,b=c\`, nil}[r.IntN(6)],
		"size":     []any{0, 1, json.RawMessage("9223372036854775807"), -1, nil}[r.IntN(5)],
		"on":       []any{true, false, nil}[r.IntN(3)],
		"text":     text(r),
		"number":   json.RawMessage(numbers[r.IntN(len(numbers))]),
		"real":     json.RawMessage(reals[r.IntN(len(reals))]),
		"anything": object{"value": json.RawMessage(values[r.IntN(len(values))]), "<key>&": json.RawMessage(values[r.IntN(len(values))])},
		"map":      texts(r),
		"empty":    object{},
		"maybe":    nil,
	}}
}
