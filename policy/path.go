package policy

import (
	"net/http"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/policy/reason"
)

// parsePath reads method and path into req. Group, version, resource and namespace are set only if the whole path is
// canonical.
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
	// A request line in absolute form, as to a forward proxy ("GET http://host/path"), is not interpreted here.
	if r.RequestURI != "" && r.RequestURI != r.URL.RequestURI() {
		return reason.NotCanonical
	}
	req.Group = info.APIGroup
	req.Version = info.APIVersion
	req.Resource = info.Resource
	req.Namespace = info.Namespace
	return reason.None
}

// isCanonical reports whether the parts of a path have only characters that Kubernetes allows in CustomResourceDefinitions,
// and that built-in resources keep to, too. None of these characters has a second spelling in a URL.
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
	// RequestInfo takes .../namespaces/x/namespaces for a list, but the upstream's router knows no such path.
	return info.Resource != "namespaces" && len(validation.IsDNS1123Label(info.Namespace)) == 0
}

// listPath returns the canonical path of a list.
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
