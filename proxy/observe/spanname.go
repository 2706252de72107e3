package observe

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// routeSubresources are those of Kubernetes' own resources, and the verbs of paths: all other words
// in their place may be made up.
var routeSubresources = sets.New("", "approval", "attach", "binding", "ephemeralcontainers", "eviction", "exec",
	"finalize", "log", "portforward", "proxy", "resize", "scale", "status", "token")

// route is the http.route of a request (OpenTelemetry's semantic conventions for HTTP): its path
// with placeholders for what callers name, as kube-apiserver names its own spans. What is no
// resource that the upstream is known to have is a placeholder as well, so that there are few
// routes whatever is asked for. A path of no resource has no route, and "" is returned.
func route(r *http.Request, known func(schema.GroupVersionResource) bool) string {
	info := kubehttp.Of(r).Info
	if !info.IsResourceRequest {
		return ""
	}
	return routeOf(info, known)
}

func routeOf(info *request.RequestInfo, known func(schema.GroupVersionResource) bool) string {
	group, version, resource := info.APIGroup, info.APIVersion, info.Resource
	if !known(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}) {
		group, version, resource = "{group}", "{version}", "{resource}"
	}
	parts := []string{"", "api", version}
	if info.APIPrefix != "api" {
		parts = []string{"", "apis", group, version}
	}
	if info.Namespace != "" && info.Resource != "namespaces" {
		parts = append(parts, "namespaces", "{namespace}")
	}
	parts = append(parts, resource)
	if info.Name != "" {
		parts = append(parts, "{name}")
	}
	switch {
	case info.Subresource == "":
	case routeSubresources.Has(info.Subresource):
		parts = append(parts, info.Subresource)
	default:
		parts = append(parts, "{subresource}")
	}
	return strings.Join(parts, "/")
}

// httpMethods are those that the semantic conventions know.
var httpMethods = sets.New(http.MethodConnect, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions,
	http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodTrace)

// methodName is a request's method as an attribute, and in the name of its span.
func methodName(method string) (attribute, inName string) {
	if httpMethods.Has(method) {
		return method, method
	}
	return "_OTHER", "HTTP"
}
