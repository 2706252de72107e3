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

// Two of the nodes that the churn writes.
const nodeA, nodeB = clusterPrefix + "a", clusterPrefix + "b"

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
	// Reader marks a version that is only read. The objects are written in another version.
	Reader bool

	// namesHaveDots reports that some names have dots.
	namesHaveDots bool
	// build returns a random new object.
	build func(*rand.Rand) object
	// patch returns a random patch.
	patch func(*rand.Rand) patch
}

// patch is a merge patch of an object, or of a subresource unless that is "".
type patch struct {
	body        object
	subresource string
}

// clusterPrefix begins the names of the objects without a namespace that the churn writes, so that it spares all others.
const clusterPrefix = "churn-"

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
	if r.namesHaveDots {
		names = append(names, "a.0", "a-0.b", "a.0-b", "b.1", "0", "0.0-a")
	}
	if !r.Namespaced {
		for i, name := range names {
			names[i] = clusterPrefix + name
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
			GroupVersionResource: core("pods"), Kind: "Pod", Namespaced: true, Cached: true, namesHaveDots: true,
			Fields: []Field{
				{NodeNameField, []string{nodeA, nodeA, nodeB, "", "none"}},
				{NodeNameField, []string{nodeA, nodeB}}, // again, so that it is chosen more often: kubelets ask for it
				{"spec.restartPolicy", []string{"Always", "Never", ""}},
				{"spec.schedulerName", []string{"default-scheduler", "other"}},
				{"spec.serviceAccountName", []string{"robot", "", "none"}},
				{"spec.hostNetwork", []string{"true", "false", ""}},
				{"status.phase", []string{"Running", "Pending", "Failed", ""}},
				{"status.podIP", []string{"10.1.0.1", "10.1.0.2", "fd00::1", ""}},
				{"status.nominatedNodeName", []string{nodeA, "", "none"}},
			},
			build: buildPod, patch: patchPod,
		},
		{
			GroupVersionResource: core("configmaps"), Kind: "ConfigMap", Namespaced: true, Cached: true, namesHaveDots: true,
			build: buildConfigMap, patch: func(r *rand.Rand) patch { return patch{body: object{"data": trickyTexts(r)}} },
		},
		{
			GroupVersionResource: core("services"), Kind: "Service", Namespaced: true, Cached: true,
			Fields: []Field{{"spec.type", []string{"ClusterIP", "ExternalName", ""}}, {"spec.clusterIP", []string{"None", "", "10.0.0.1"}}},
			build:  buildService, patch: patchMetadata,
		},
		{
			GroupVersionResource: core("serviceaccounts"), Kind: "ServiceAccount", Namespaced: true, Cached: true, namesHaveDots: true,
			build: func(*rand.Rand) object { return object{} }, patch: patchMetadata,
		},
		{
			GroupVersionResource: core("secrets"), Kind: "Secret", Namespaced: true, namesHaveDots: true,
			Fields: []Field{{"type", []string{"Opaque", "example.test/other", ""}}},
			build: func(r *rand.Rand) object {
				return object{"stringData": trickyTexts(r), "type": oneOf(r, "Opaque", "example.test/other")}
			},
			patch: patchMetadata,
		},
		{
			GroupVersionResource: core("nodes"), Kind: "Node", Cached: true, namesHaveDots: true,
			Fields: []Field{{"spec.unschedulable", []string{"true", "false", ""}}},
			build:  func(r *rand.Rand) object { return object{"spec": object{"unschedulable": r.IntN(2) == 0}} },
			patch: func(r *rand.Rand) patch {
				return patch{body: object{"spec": object{"unschedulable": oneOf(r, true, false, nil)}}}
			},
		},
		{
			GroupVersionResource: core("replicationcontrollers"), Kind: "ReplicationController", Namespaced: true, Cached: true, namesHaveDots: true,
			Fields: []Field{{"status.replicas", []string{"0", "1", "2", ""}}},
			build:  buildController,
			patch: func(r *rand.Rand) patch {
				return patch{body: object{"status": object{"replicas": r.IntN(3)}}, subresource: "status"}
			},
		},
		{
			GroupVersionResource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"},
			Kind:                 "Job", Namespaced: true, Cached: true, namesHaveDots: true,
			Fields: []Field{{"status.successful", []string{"0", "1", "2", ""}}},
			build:  buildJob,
			patch: func(r *rand.Rand) patch {
				return patch{body: object{"status": object{"succeeded": r.IntN(3)}}, subresource: "status"}
			},
		},
		{
			GroupVersionResource: core("namespaces"), Kind: "Namespace", Cached: true,
			Fields: []Field{{"status.phase", []string{"Active", "Terminating", ""}}},
			build:  func(*rand.Rand) object { return object{} }, patch: patchMetadata,
		},
		{
			GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
			Kind:                 "Deployment", Namespaced: true, Cached: true, namesHaveDots: true,
			build: buildDeployment,
			patch: func(r *rand.Rand) patch { return patch{body: object{"spec": object{"replicas": r.IntN(100)}}} },
		},
		{
			GroupVersionResource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
			Kind:                 "Lease", Namespaced: true, Cached: true, namesHaveDots: true,
			build: func(r *rand.Rand) object { return object{"spec": object{"holderIdentity": trickyText(r)}} },
			patch: func(r *rand.Rand) patch {
				return patch{body: object{"spec": object{"renewTime": fmt.Sprintf("2026-01-02T03:04:05.%06dZ", r.IntN(1e6))}}}
			},
		},
		{
			GroupVersionResource: custom("v1", "gadgets"), Kind: "Gadget", Namespaced: true, Cached: true, namesHaveDots: true,
			Fields: customFields,
			build:  buildCustom, patch: func(r *rand.Rand) patch { return patch{body: buildCustom(r)} },
		},
		// The same objects in a deprecated version, whose lists carry a Warning.
		{
			GroupVersionResource: custom("v1beta1", "gadgets"), Kind: "Gadget", Namespaced: true, Cached: true, namesHaveDots: true,
			Reader: true, Fields: customFields[:1],
		},
		{
			GroupVersionResource: custom("v1", "widgets"), Kind: "Widget", Cached: true, namesHaveDots: true,
			Fields: customFields,
			build:  buildCustom, patch: func(r *rand.Rand) patch { return patch{body: buildCustom(r)} },
		},
	}
}

// pick returns one of all at random.
func pick[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }

// oneOf returns one of values at random. One that is there twice is chosen more often.
func oneOf(r *rand.Rand, values ...any) any { return pick(r, values) }

// trickyText returns a random string that a wrong encoder of JSON may change.
func trickyText(r *rand.Rand) string {
	return pick(r, []string{
		"plain", "", " ", "null", "true", "0123",
		`<b>&amp;</b>`, "line\u2028 and paragraph\u2029", `quote " backslash \ slash /`, "tab\tnewline\ncr\rbell\b\f",
		"\u0000\u0001\u001f\u007f\u0080", "日本語 🚀 é e\u0301", "\ufffd\ufeff",
		`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1"}},`, `"continue":"eyJ2IjoibWV0YSJ9"`, `]}` + "\n",
	})
}

// trickyTexts returns a map of such strings, and one that may be long.
func trickyTexts(r *rand.Rand) object {
	m := object{"size": strings.Repeat("x<>", r.IntN(3)*r.IntN(200))} // a third are empty
	for i := range r.IntN(4) {
		m[fmt.Sprintf("key.%d", i)] = trickyText(r)
	}
	return m
}

// randomLabels returns random labels for a merge patch, where nil deletes a label. They are those that labelSelectors select by.
func randomLabels(r *rand.Rand) object {
	return object{
		"tier":                 oneOf(r, "web", "db", "", nil),
		"turn":                 oneOf(r, fmt.Sprint(r.IntN(5)), fmt.Sprint(r.IntN(5)), nil),
		"weight":               oneOf(r, "3", "7", "12", "heavy", nil),
		"example.test/part-of": oneOf(r, "x.y_z-1", nil, nil),
		"in":                   oneOf(r, "in", nil, nil, nil),
	}
}

// maybeLabelled returns an object or a patch, every other time with labels unless it has metadata.
func maybeLabelled(r *rand.Rand, o object) object {
	if _, ok := o["metadata"]; !ok && r.IntN(2) > 0 {
		o["metadata"] = object{"labels": randomLabels(r)}
	}
	return o
}

func patchMetadata(r *rand.Rand) patch {
	return patch{body: object{"metadata": object{
		"labels":      randomLabels(r),
		"annotations": object{"note": trickyText(r), "gone": nil},
	}}}
}

func buildConfigMap(r *rand.Rand) object {
	o := object{"data": trickyTexts(r)}
	if r.IntN(3) == 0 {
		o["binaryData"] = object{"b": "AAH/"}
	}
	return o
}

func buildPod(r *rand.Rand) object {
	spec := object{
		"restartPolicy": oneOf(r, "Always", "Never"),
		"containers": []any{object{
			"name": "c", "image": "registry.test/app:1",
			"env":     []any{object{"name": "TEXT", "value": trickyText(r)}, object{"name": "SIZE", "value": strings.Repeat("v", r.IntN(2)*r.IntN(4000))}},
			"command": []string{"sh", "-c", "echo '<&>' > /dev/null"},
		}},
	}
	if r.IntN(2) == 0 {
		spec["nodeName"] = oneOf(r, nodeA, nodeB)
	}
	if r.IntN(3) == 0 {
		spec["schedulerName"] = "other"
		spec["serviceAccountName"] = "robot"
		spec["hostNetwork"] = true
	}
	return object{"spec": spec}
}

// binding is the subresource that gives a pod its node.
const binding = "binding"

func patchPod(r *rand.Rand) patch {
	switch r.IntN(4) {
	case 0:
		return patchMetadata(r)
	case 1: // as the scheduler does; refused if the pod has a node
		target := object{"apiVersion": "v1", "kind": "Node", "name": oneOf(r, nodeA, nodeB)}
		return patch{body: object{"apiVersion": "v1", "kind": "Binding", "target": target}, subresource: binding}
	}
	status := object{
		"phase":   oneOf(r, "Pending", "Running", "Failed"),
		"message": trickyText(r),
		"podIP":   nil, "podIPs": nil,
		"nominatedNodeName": oneOf(r, nodeA, nil),
	}
	if r.IntN(4) > 0 {
		ip := oneOf(r, "10.1.0.1", "10.1.0.2", "fd00::1")
		status["podIP"], status["podIPs"] = ip, []any{object{"ip": ip}}
	}
	return patch{body: object{"status": status}, subresource: "status"}
}

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
			"containers": []any{object{"name": "c", "image": "registry.test/app:1", "args": []string{trickyText(r)}}},
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
		"color":    oneOf(r, "red", "red", "blue", "", `a,b=c\`, nil),
		"size":     oneOf(r, 0, 1, json.RawMessage("9223372036854775807"), -1, nil),
		"on":       oneOf(r, true, false, nil),
		"text":     trickyText(r),
		"number":   json.RawMessage(pick(r, numbers)),
		"real":     json.RawMessage(pick(r, reals)),
		"anything": object{"value": json.RawMessage(pick(r, values)), "<key>&": json.RawMessage(pick(r, values))},
		"map":      trickyTexts(r),
		"empty":    object{},
		"maybe":    nil,
	}}
}
