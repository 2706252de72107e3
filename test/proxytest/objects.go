package proxytest

import (
	"fmt"
	"strings"
)

// VersionOf is what /version says of an API server.
func VersionOf(gitVersion string) string { return fmt.Sprintf(`{"gitVersion":%q}`, gitVersion) }

// APIService is that of a group and version. What is built in is marked so; groups that end in example.com follow
// definitions. service is JSON, empty for none.
func APIService(version, group, service string, revision int) string {
	if service != "" {
		service = `,"service":` + service
	}
	managed := "onstart"
	if strings.HasSuffix(group, "example.com") {
		managed = "true"
	}
	return fmt.Sprintf(`{"kind":"APIService","apiVersion":"apiregistration.k8s.io/v1","metadata":{"name":"%s.%s","resourceVersion":"%d",`+
		`"labels":{"kube-aggregator.kubernetes.io/automanaged":%q}},"spec":{"group":%q,"version":%q%s}}`,
		version, group, revision, managed, group, version, service)
}

// Definition is that of a resource in v1 of example.com.
func Definition(resource, scope string, generation, revision int) string {
	return fmt.Sprintf(`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"%s.example.com",`+
		`"uid":"1","resourceVersion":"%d","generation":%d},"spec":{"group":"example.com","scope":%q,"versions":[{"name":"v1","served":true}]},`+
		`"status":{"conditions":[{"type":"Established","status":"True"}]}}`, resource, revision, generation, scope)
}
