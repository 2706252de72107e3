package proxytest

import (
	"fmt"
	"strings"
)

// VersionOf returns the answer to /version of an API server.
func VersionOf(gitVersion string) string { return fmt.Sprintf(`{"gitVersion":%q}`, gitVersion) }

// APIService returns the APIService of a group and version. Its automanaged label is "true", as for custom resources, if the
// group ends in example.com, else "onstart", as for built-in groups. service is JSON; "" means no service.
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

// Definition returns the CustomResourceDefinition of a resource in v1 of example.com.
func Definition(resource, scope string, generation, revision int) string {
	return fmt.Sprintf(`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"%s.example.com",`+
		`"uid":"1","resourceVersion":"%d","generation":%d},"spec":{"group":"example.com","scope":%q,"versions":[{"name":"v1","served":true}]},`+
		`"status":{"conditions":[{"type":"Established","status":"True"}]}}`, resource, revision, generation, scope)
}
