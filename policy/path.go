package policy

import (
	"net/http"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/policy/reason"
)

// parsePath reads method and path, and sets what they say in req. Group, version,
// resource and namespace are only set if the whole path is canonical.
func parsePath(r *http.Request, info *request.RequestInfo, req *Request) reason.Reason {
	if r.Method != http.MethodGet {
		return reason.NotList
	}
	switch {
	case !info.IsResourceRequest:
		return reason.NotList
	case info.Verb == "watch":
		return reason.Watch
	case info.Verb != "list" || info.Subresource != "" || info.Name != "":
		return reason.NotList
	}
	if !isCanonical(info) {
		return reason.NotCanonical
	}
	path := listPath(info.APIGroup, info.APIVersion, info.Namespace, info.Resource)
	if r.URL.Path != path || r.URL.EscapedPath() != path {
		return reason.NotCanonical
	}
	// The absolute form, which proxies get ("GET http://host/path"), is not interpreted here.
	if r.RequestURI != "" && r.RequestURI != r.URL.RequestURI() {
		return reason.NotCanonical
	}
	req.Group, req.Version, req.Resource, req.Namespace = info.APIGroup, info.APIVersion, info.Resource, info.Namespace
	return ""
}

// isCanonical checks the parts of a path for the alphabets that Kubernetes allows
// (those of CustomResourceDefinitions; the built-in resources keep to them too).
// None of their characters has a second spelling in a URL.
func isCanonical(info *request.RequestInfo) bool {
	if info.APIGroup != "" && len(validation.IsDNS1123Subdomain(info.APIGroup)) > 0 {
		return false
	}
	if len(validation.IsDNS1035Label(info.APIVersion)) > 0 || len(validation.IsDNS1035Label(info.Resource)) > 0 {
		return false
	}
	if info.Namespace == "" {
		return true
	}
	// RequestInfo sees a resource in .../namespaces/x/namespaces; the upstream's
	// router knows no such path.
	return info.Resource != "namespaces" && len(validation.IsDNS1123Label(info.Namespace)) == 0
}

// listPath is the one path of a list.
func listPath(group, version, namespace, resource string) string {
	prefix := "/api/" + version
	if group != "" {
		prefix = "/apis/" + group + "/" + version
	}
	if namespace != "" {
		return prefix + "/namespaces/" + namespace + "/" + resource
	}
	return prefix + "/" + resource
}
