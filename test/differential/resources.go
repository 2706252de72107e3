package differential

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// object is JSON as it is sent; numbers that Go would write differently are json.RawMessage.
type object = map[string]any

// Resource is a kind of object that takes part.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Cached is false for what listproxy keeps out of memory unless told otherwise.
	Cached bool
	// Fields are field selectors that the API server knows for it.
	Fields []string
	// dotted is true if names may hold dots.
	dotted bool
	// reader: written through another version; this one is only listed.
	reader bool
	build  func(*rand.Rand) object
	// patch is a merge patch, and the subresource it is for.
	patch func(*rand.Rand) (object, string)
}

// Path of a list: of the whole resource, or of one namespace.
func (r Resource) Path(namespace string) string {
	p := "/api/" + r.Version
	if r.Group != "" {
		p = "/apis/" + r.Group + "/" + r.Version
	}
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	return p + "/" + r.Resource
}

// Eager is the resource as --eager wants it.
func (r Resource) Eager() string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Version + "." + r.Group
}

// names returns the names that objects of this resource take: prefixes of each other, and with
// characters on both sides of '/' in byte order, which is what the order of keys turns on.
func (r Resource) names() []string {
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

// group of the custom resources.
const group = "differential.listproxy.test"

// resources returns everything that is compared.
func resources() []Resource {
	core := func(name string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: name}
	}
	custom := func(version, name string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: name}
	}
	return []Resource{
		{
			GroupVersionResource: core("pods"), Kind: "Pod", Namespaced: true, Cached: true, dotted: true,
			Fields: []string{"spec.nodeName=churn-a", "status.phase=Running", "spec.restartPolicy!=Never"},
			build:  buildPod, patch: patchPod,
		},
		{
			GroupVersionResource: core("configmaps"), Kind: "ConfigMap", Namespaced: true, Cached: true, dotted: true,
			build: buildConfigMap, patch: func(r *rand.Rand) (object, string) { return object{"data": texts(r)}, "" },
		},
		{
			GroupVersionResource: core("services"), Kind: "Service", Namespaced: true, Cached: true,
			Fields: []string{"spec.type=ClusterIP", "spec.clusterIP=None"},
			build:  buildService, patch: patchMetadata,
		},
		{
			GroupVersionResource: core("serviceaccounts"), Kind: "ServiceAccount", Namespaced: true, Cached: true, dotted: true,
			build: func(*rand.Rand) object { return object{} }, patch: patchMetadata,
		},
		{
			GroupVersionResource: core("secrets"), Kind: "Secret", Namespaced: true, dotted: true,
			Fields: []string{"type=Opaque"},
			build:  func(r *rand.Rand) object { return object{"stringData": texts(r)} }, patch: patchMetadata,
		},
		{
			GroupVersionResource: core("nodes"), Kind: "Node", Cached: true, dotted: true,
			Fields: []string{"spec.unschedulable=true"},
			build:  func(r *rand.Rand) object { return object{"spec": object{"unschedulable": r.IntN(2) == 0}} },
			patch:  patchMetadata,
		},
		{
			GroupVersionResource: core("namespaces"), Kind: "Namespace", Cached: true,
			Fields: []string{"status.phase=Active"},
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
			build: buildCustom, patch: func(r *rand.Rand) (object, string) { return buildCustom(r), "" },
		},
		// The same objects in a deprecated version, whose lists carry a Warning.
		{GroupVersionResource: custom("v1beta1", "gadgets"), Kind: "Gadget", Namespaced: true, Cached: true, dotted: true, reader: true},
		{
			GroupVersionResource: custom("v1", "widgets"), Kind: "Widget", Cached: true, dotted: true,
			build: buildCustom, patch: func(r *rand.Rand) (object, string) { return buildCustom(r), "" },
		},
	}
}

// text returns a string that a careless writer of JSON would change.
func text(r *rand.Rand) string {
	all := []string{
		"plain", "", " ", "null", "true", "0123",
		`<b>&amp;</b>`, "line\u2028 and paragraph\u2029", `quote " backslash \ slash /`, "tab\tnewline\ncr\rbell\b\f",
		"\u0000\u0001\u001f\u007f\u0080", "日本語 🚀 é e\u0301", "\ufffd\ufeff",
		`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1"}},`, `"continue":"eyJ2IjoibWV0YSJ9"`, `]}` + "\n",
	}
	return all[r.IntN(len(all))]
}

// texts is a map of such strings, sometimes a large one.
func texts(r *rand.Rand) object {
	m := object{"size": strings.Repeat("x<>", r.IntN(3)*r.IntN(200))}
	for i := range r.IntN(4) {
		m[fmt.Sprintf("key.%d", i)] = text(r)
	}
	return m
}

func patchMetadata(r *rand.Rand) (object, string) {
	return object{"metadata": object{
		"labels":      object{"tier": []string{"web", "db", ""}[r.IntN(3)], "turn": fmt.Sprint(r.IntN(5))},
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
	return object{"spec": spec}
}

func patchPod(r *rand.Rand) (object, string) {
	if r.IntN(2) == 0 {
		return patchMetadata(r)
	}
	return object{"status": object{
		"phase": []string{"Pending", "Running", "Failed"}[r.IntN(3)], "message": text(r), "podIP": fmt.Sprintf("10.1.0.%d", r.IntN(250)),
	}}, "status"
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

// buildCustom fills a custom resource with what JSON has: numbers at the edges of their types,
// null, empty maps and lists, deep nesting.
func buildCustom(r *rand.Rand) object {
	numbers := []string{"0", "-1", "9007199254740993", "9223372036854775807", "-9223372036854775808", "42"}
	reals := []string{"0.1", "1e21", "-1.5e-7", "3.0", "1E+2", "123456789.123456789", "-0.0"}
	values := []string{"null", "{}", "[]", `{"b":1,"a":[null,{"z":{},"y":[]}]}`, `"\u003c\u2028"`, "true", "-0", "1.0"}
	return object{"spec": object{
		"text":     text(r),
		"number":   json.RawMessage(numbers[r.IntN(len(numbers))]),
		"real":     json.RawMessage(reals[r.IntN(len(reals))]),
		"anything": object{"value": json.RawMessage(values[r.IntN(len(values))]), "<key>&": json.RawMessage(values[r.IntN(len(values))])},
		"map":      texts(r),
		"empty":    object{},
		"maybe":    nil,
	}}
}
