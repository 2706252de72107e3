package differential

// definitions returns the CustomResourceDefinitions of the custom resources: a namespaced one in
// two versions, the older of which warns, and one for the whole cluster.
func definitions() []object {
	schema := object{"openAPIV3Schema": object{
		"type": "object",
		"properties": object{"spec": object{"type": "object", "properties": object{
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
	definition := func(plural, kind, scope string, versions ...any) object {
		return object{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": object{"name": plural + "." + group},
			"spec": object{
				"group": group, "scope": scope, "versions": versions,
				"names": object{"plural": plural, "kind": kind, "listKind": kind + "List"},
			},
		}
	}
	current := object{"name": "v1", "served": true, "storage": true, "schema": schema}
	deprecated := object{
		"name": "v1beta1", "served": true, "storage": false, "schema": schema,
		"deprecated": true, "deprecationWarning": `use v1, "now"`,
	}
	return []object{
		definition("gadgets", "Gadget", "Namespaced", current, deprecated),
		definition("widgets", "Widget", "Cluster", current),
	}
}
