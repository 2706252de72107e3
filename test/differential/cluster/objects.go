package cluster

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// object is a JSON object as it is sent. Numbers that Go would write in another way are json.RawMessage.
type object = map[string]any

// patch is a merge patch of an object or of its subresource.
type patch struct {
	body        object
	subresource string // "": the object itself
}

// pick returns one of all at random.
func pick[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }

// oneOf returns one of values at random. A value that is listed twice is chosen twice as often.
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

// trickyTexts returns a map of tricky texts, and a text that may be long.
func trickyTexts(r *rand.Rand) object {
	m := object{"size": strings.Repeat("x<>", r.IntN(3)*r.IntN(200))} // a third are empty
	for i := range r.IntN(4) {
		m[fmt.Sprintf("key.%d", i)] = trickyText(r)
	}
	return m
}

// randomLabels returns random labels for a merge patch, where nil deletes a label. They are those that labelSelectors select
// by.
func randomLabels(r *rand.Rand) object {
	return object{
		"tier":                 oneOf(r, "web", "db", "", nil),
		"turn":                 oneOf(r, fmt.Sprint(r.IntN(5)), fmt.Sprint(r.IntN(5)), nil),
		"weight":               oneOf(r, "3", "7", "12", "heavy", nil),
		"example.test/part-of": oneOf(r, "x.y_z-1", nil, nil),
		"in":                   oneOf(r, "in", nil, nil, nil),
	}
}

// maybeLabelled adds random labels to an object or a patch every other time, and returns it. If it has metadata, it stays as it
// is.
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
			"env": []any{
				object{"name": "TEXT", "value": trickyText(r)},
				object{"name": "SIZE", "value": strings.Repeat("v", r.IntN(2)*r.IntN(4000))},
			},
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

// containers are those of pod templates.
var containers = []any{object{"name": "c", "image": "registry.test/app:1"}}

func buildController(r *rand.Rand) object {
	labels := object{"app": "x"}
	return object{"spec": object{
		"replicas": r.IntN(3), "selector": labels,
		"template": object{"metadata": object{"labels": labels}, "spec": object{"containers": containers}},
	}}
}

func buildDeployment(r *rand.Rand) object {
	labels := object{"app": "x"}
	return object{"spec": object{
		"replicas": r.IntN(10), "selector": object{"matchLabels": labels},
		"template": object{"metadata": object{"labels": labels}, "spec": object{"containers": containers}},
	}}
}

func buildJob(*rand.Rand) object {
	template := object{"spec": object{"restartPolicy": "Never", "containers": containers}}
	return object{"spec": object{"completions": 3, "template": template}}
}

func buildService(r *rand.Rand) object {
	spec := object{"ports": []any{object{"port": 1 + r.IntN(60000)}}, "selector": object{"app": "x"}}
	if r.IntN(2) == 0 {
		spec["clusterIP"] = "None"
	}
	return object{"spec": spec}
}

// buildCustom returns a custom resource with unusual JSON: numbers at the limits of their types, null, empty maps and lists,
// and deep nesting.
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
