package main

import (
	"fmt"

	"github.com/listproxy/listproxy/test/harness/kinds"
)

// The demo's own kind of custom resource.
const (
	databaseGroup = "demo.example.com"
	databases     = "/apis/" + databaseGroup + "/v1/databases"
	databaseCount = 200
)

// object is JSON that is only sent, never read.
type object = kinds.Fields

// databaseKind is that of databases.
func databaseKind() kinds.Kind {
	return kinds.Kind{APIVersion: databaseGroup + "/v1", Name: "Database", Plural: "databases"}
}

// databaseDefinition is the CustomResourceDefinition of databases.
func databaseDefinition() object {
	text := object{"type": "string"}
	return databaseKind().Definition(kinds.Version(object{"type": "object", "properties": object{
		"spec": object{"type": "object", "properties": object{
			"engine": text, "version": text, "storage": text, "replicas": object{"type": "integer", "default": 1},
		}},
	}}))
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
