package main

import "fmt"

// The demo's own kind of custom resource.
const (
	databaseGroup = "demo.example.com"
	databases     = "/apis/" + databaseGroup + "/v1/databases"
	databaseCount = 200
)

// object is JSON that is only sent, never read.
type object map[string]any

func namespaceObject(name string) object {
	return object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name}}
}

// databaseDefinition is the CustomResourceDefinition of databases.
func databaseDefinition() object {
	text := object{"type": "string"}
	schema := object{"type": "object", "properties": object{
		"spec": object{"type": "object", "properties": object{
			"engine": text, "version": text, "storage": text, "replicas": object{"type": "integer", "default": 1},
		}},
	}}
	return object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": object{"name": "databases." + databaseGroup},
		"spec": object{
			"group": databaseGroup, "scope": "Namespaced",
			"names": object{"plural": "databases", "singular": "database", "kind": "Database"},
			"versions": []object{{
				"name": "v1", "served": true, "storage": true, "schema": object{"openAPIV3Schema": schema},
			}},
		},
	}
}

// database returns the i-th custom resource.
func database(i int) object {
	engines := []string{"postgres", "mysql", "redis"}
	return object{
		"apiVersion": databaseGroup + "/v1", "kind": "Database",
		"metadata": object{
			"name":   fmt.Sprintf("%s-%03d", engines[i%len(engines)], i),
			"labels": object{"engine": engines[i%len(engines)]},
		},
		"spec": object{"engine": engines[i%len(engines)], "version": fmt.Sprintf("%d.2", 12+i%5), "storage": "20Gi"},
	}
}
