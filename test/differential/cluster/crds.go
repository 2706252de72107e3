package cluster

import "github.com/listproxy/listproxy/test/harness/kinds"

// definitions returns two CustomResourceDefinitions. Gadgets have namespaces and two versions, of which the older one has a
// deprecation warning and fewer selectable fields. Widgets are cluster-scoped.
func definitions() []object {
	selectable := func(all []Field) []any {
		var paths []any
		for _, f := range all {
			paths = append(paths, object{"jsonPath": "." + f.Name})
		}
		return paths
	}
	current := object{"name": "v1", "served": true, "storage": true, "schema": schemaOf("now"), "selectableFields": selectable(customFields)}
	deprecated := object{
		"name": "v1beta1", "served": true, "storage": false, "schema": schemaOf("once"), // kube-apiserver refuses equal schemas
		"selectableFields": selectable(customFields[:1]),
		"deprecated":       true, "deprecationWarning": `use v1, "now"`,
	}
	return []object{
		kinds.Kind{APIVersion: Group + "/v1", Name: "Gadget", Plural: "gadgets"}.Definition(current, deprecated),
		kinds.Kind{APIVersion: Group + "/v1", Name: "Widget", Plural: "widgets", ClusterScoped: true}.Definition(current),
	}
}

// schemaOf returns a schema with a field of every type.
func schemaOf(description string) object {
	return object{"openAPIV3Schema": object{
		"type": "object", "description": description,
		"properties": object{"spec": object{"type": "object", "properties": object{
			"color":    object{"type": "string"},
			"size":     object{"type": "integer", "format": "int64"},
			"on":       object{"type": "boolean"},
			"text":     object{"type": "string"},
			"number":   object{"type": "integer", "format": "int64"},
			"real":     object{"type": "number"},
			"anything": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			"map":      object{"type": "object", "additionalProperties": object{"type": "string"}},
			"empty":    object{"type": "object"},
			"maybe":    object{"type": "string", "nullable": true},
			"default":  object{"type": "string", "default": "<given>"},
		}}},
	}}
}
